import test from "ava";
import { missingCopies, natsMembersStep, type NatsMembersFacts } from "../../machines/manager/nats-members.ts";
import { peerIdOf } from "../../runtime/nats/members.ts";

const server = (managerId: string, isCurrent = true, name = `muster-${managerId}-c`) => ({
  name,
  managerId,
  isCurrent,
});
const name = (managerId: string): string => server(managerId).name;
const manager = (id: string, alive = true) => ({ id, alive });

/** Three managers with a server each, as `a` sees them. */
function facts(changes: Partial<NatsMembersFacts> = {}): NatsMembersFacts {
  const ids = ["a", "b", "c"];
  return {
    ownId: "a",
    managers: ids.map((id) => manager(id)),
    servers: ids.map((id) => server(id)),
    copies: [ids.map(name), ids.map(name), ids.map(name)],
    known: ids.map(name),
    ...changes,
  };
}
const two = ["a", "b"].map(name);
const withoutC = { managers: [manager("a"), manager("b")], copies: [two, two, two] };

test("three servers of three managers need nothing", (t) => {
  t.deepEqual(natsMembersStep(facts()), { kind: "none" });
  t.is(missingCopies(facts()), null);
});

test("a dead manager's server stays until the manager is removed, and the operator is shown that it is away", (t) => {
  const away = facts({
    managers: [manager("a"), manager("b"), manager("c", false), manager("d")],
    servers: [server("a"), server("b"), server("c", false)],
    copies: [two, two, two],
  });
  t.deepEqual(natsMembersStep(away), { kind: "none" });
  t.regex(missingCopies(away) ?? "", /^the log has 2 of 3 current copies: the nats-server of manager c is away/);
});

test("without another manager, the server of a removed one stays, and its place is reported", (t) => {
  const alone = facts({ ...withoutC, servers: [server("a"), server("b"), server("c", false)] });
  t.deepEqual(natsMembersStep(alone), { kind: "none" });
  t.regex(missingCopies(alone) ?? "", /: join another manager to have the third again$/);
  const demoted = facts({ managers: [manager("a"), manager("b")] });
  t.regex(missingCopies(demoted) ?? "", /: join another manager to replace it$/);
});

test("a new manager's server is added first, and the old one removed when the cluster has three others", (t) => {
  const managers = [manager("a"), manager("b"), manager("d")];
  const servers = [server("a"), server("b"), server("c", false)];
  const begun = facts({ ...withoutC, managers, servers });
  t.deepEqual(natsMembersStep(begun), { kind: "add", managerId: "d" });
  t.deepEqual(natsMembersStep({ ...begun, ownId: "b" }), { kind: "none" }, "one manager acts");
  const added = { ...begun, servers: [...servers, server("d")], known: [...begun.known, name("d")] };
  t.deepEqual(natsMembersStep(added), { kind: "remove", server: name("c") });
  t.deepEqual(natsMembersStep({ ...added, ownId: "b" }), { kind: "none" });
  t.deepEqual(natsMembersStep({ ...added, ownId: "b", known: begun.known }), { kind: "learn" });
  const done = { ...added, servers: [server("a"), server("b"), server("d")] };
  t.deepEqual(natsMembersStep({ ...done, ownId: "b" }), { kind: "learn" }, "its list still has the old server");
  t.deepEqual(natsMembersStep({ ...done, known: [...two, name("d")] }), { kind: "none" });
});

test("a manager that is away is not asked for a server", (t) => {
  const servers = [server("a"), server("b"), server("c", false)];
  const managers = [manager("a"), manager("b"), manager("d", false)];
  t.deepEqual(natsMembersStep(facts({ ...withoutC, managers, servers })), { kind: "none" });
  t.deepEqual(natsMembersStep(facts({ ...withoutC, managers: [...managers, manager("e")], servers })), {
    kind: "add",
    managerId: "e",
  });
});

test("the manager that acts is alive, and the next one takes its place", (t) => {
  const managers = [manager("a", false), manager("b"), manager("d")];
  const found = facts({ ...withoutC, managers, servers: [server("a"), server("b"), server("c", false)], ownId: "b" });
  t.deepEqual(natsMembersStep(found), { kind: "add", managerId: "d" });
});

test("no server is removed while the others lack a current copy of a stream", (t) => {
  const managers = [manager("a"), manager("d"), manager("e")];
  const ids = ["a", "b", "d", "e"];
  const copying = facts({
    managers,
    servers: ids.map((id) => server(id)),
    known: ids.map(name),
    copies: [[name("a"), name("b"), name("d")], two, two],
  });
  t.deepEqual(natsMembersStep(copying), { kind: "none" });
  const copied = ["a", "b", "d"].map(name);
  t.deepEqual(natsMembersStep({ ...copying, copies: [copied, copied, copied] }), {
    kind: "remove",
    server: name("b"),
  });
});

test("one of four current servers is removed, but never the acting manager's", (t) => {
  const ids = ["a", "b", "c", "d"];
  const four = facts({
    managers: ids.map((id) => manager(id)),
    servers: ids.map((id) => server(id)),
    known: ids.map(name),
  });
  t.deepEqual(natsMembersStep(four), { kind: "remove", server: name("d") });
  const left = { ...four, servers: ["a", "b", "c"].map((id) => server(id)), ownId: "d" };
  t.deepEqual(natsMembersStep(left), { kind: "learn" }, "the list that lacks it has replaced its own");
});

test("an earlier server of a manager is removed once the manager has another one", (t) => {
  const servers = [server("a"), server("b"), server("c", false), server("c", true, "muster-c-c-2")];
  const found = facts({ servers, known: servers.map((each) => each.name) });
  t.deepEqual(natsMembersStep(found), { kind: "remove", server: name("c") });
});

test("a member whose name NATS has forgotten is recognised by its id", (t) => {
  // Taken from a cluster of nats-servers 2.15.1.
  t.is(peerIdOf("muster-zauqevorkl4exsjcfm2u4bib0-tlufgtl850jrw6yc7fil9s9bg"), "RM6NKKfG");
  t.is(peerIdOf("muster-6fwc41kt9mi6bh64l8bxj02me-tlufgtl850jrw6yc7fil9s9bg"), "HojOP2Vd");
  t.is(peerIdOf("Server name unknown at this time (peerID: qAJtQoPA)"), "qAJtQoPA");
});
