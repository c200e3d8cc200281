import test from "ava";
import fc from "fast-check";
import { causesOf, headerBytesMax, transactionRecord } from "../../actors/ledger/record.ts";
import { callerOf, writingAs } from "../../actors/origin.ts";
import { callerText, parseCaller } from "../../edges/grpc/calling-process.ts";
import { assemble } from "../../machines/ledger/batch.ts";
import {
  Caller,
  LocalProcess,
  Origin,
  ProposeRequest,
  ProposeRequest_Mode,
  type Operation,
} from "../../proto/gen/messages.ts";
import type { Peer } from "../../runtime/ports/rpc.ts";
import { changeFramingBytes, recordOverheadBytes } from "../../runtime/store/record.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { Staging } from "../../runtime/store/staging.ts";
import type { Cause, Commit, Proposal } from "../../runtime/store/store.ts";
import { testManager } from "../support/manager.ts";
import { create, node, proposal } from "./store-kit.ts";

const limits = { bytesMax: 1_000_000, changesMax: 10_000, changeFramingBytes };
const traced = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/** The replica's report of a transaction that contains these proposals. */
function committed(proposals: readonly ProposeRequest[]): { readonly commit: Commit; readonly bytes: number } {
  const replica = new Replica();
  const waiting = proposals.map((request) => ({ request, from: 0, skipped: 0 }));
  const batch = assemble(new Staging(replica), waiting, limits);
  const { env } = testManager();
  const record = transactionRecord(env, replica, "t1", 1, batch, causesOf(proposals, batch.counts));
  return { commit: replica.apply(1, record), bytes: record.length };
}

function attributed({ causes, changes }: Commit): readonly (Cause | null)[] {
  const all = causes.flatMap((cause) => Array.from({ length: cause.changes }, () => cause));
  return changes.map((_, at) => all[at] ?? null);
}

const callers = [
  null,
  Caller.create({ method: "Control.UpdateNode", nodeId: "n1" }),
  Caller.create({ method: "Control.RemoveNode" }),
];
const asking = fc.record({
  caller: fc.constantFrom(...callers),
  origin: fc.constantFrom(Origin.ORIGIN_UNKNOWN, Origin.ORIGIN_SCHEDULER, Origin.ORIGIN_REAPER),
  traceparent: fc.constantFrom("", "", traced),
  changes: fc.nat(3),
});

test("each change of a transaction is reported with who requested it, whatever shares the transaction", (t) => {
  let next = 0;
  const proposalOf = (one: { caller: Caller | null; origin: Origin; traceparent: string; changes: number }) => {
    const operations: Operation[] = Array.from({ length: one.changes }, () =>
      create({ node: node(`n${(next += 1)}`) }),
    );
    const { caller, origin, traceparent } = one;
    return ProposeRequest.create({
      id: `p${next}`,
      operations,
      mode: ProposeRequest_Mode.EACH,
      caller,
      origin,
      traceparent,
    });
  };
  fc.assert(
    fc.property(fc.array(asking, { minLength: 1, maxLength: 30 }), (given) => {
      const proposals = given.map(proposalOf);
      const { commit } = committed(proposals);
      const wanted = given.flatMap(({ changes, ...who }) => Array.from({ length: changes }, () => who));
      t.is(commit.changes.length, wanted.length);
      for (const [at, cause] of attributed(commit).entries()) {
        const { caller, origin, traceparent } = wanted[at] as (typeof wanted)[number];
        t.is(cause?.caller?.method, caller?.method);
        t.is(cause?.origin ?? Origin.ORIGIN_UNKNOWN, origin);
        t.is(cause?.traceparent ?? "", traceparent);
      }
    }),
  );
});

test("recording the requester costs a few bytes, and fits into a record however many there are", (t) => {
  const size = (fields: Partial<ProposeRequest>): number =>
    committed([ProposeRequest.create({ id: "p", operations: [create({ node: node("n") })], ...fields })]).bytes;
  const bare = size({});
  t.is(size({ origin: Origin.ORIGIN_SCHEDULER }) - bare, 4);
  const longest = callerOf({
    method: `/docker.swarmkit.v1.${"C".repeat(300)}/${"M".repeat(300)}`,
    peer: {
      identity: { nodeId: "n".repeat(300), role: "swarm-manager", organization: "o" },
      local: true,
      address: "f".repeat(300),
      process: { uid: 0xffffffff, pid: 0xffffffff, user: "u".repeat(32) },
    },
  });
  const many = Array.from({ length: 100 }, (_, at) =>
    ProposeRequest.create({
      id: `p${at}`,
      operations: [create({ node: node(`n${at}`) })],
      caller: Caller.patch(longest as Caller, {}),
      traceparent: traced,
    }),
  );
  const { commit, bytes } = committed(many);
  const without = committed(many.map((each) => ProposeRequest.patch(each, { caller: null, traceparent: "" })));
  t.is(commit.changes.length, 100);
  t.true(bytes - without.bytes < headerBytesMax - recordOverheadBytes - 128, `${bytes - without.bytes}`);
});

test("a caller is named by its certificate or, on the control socket, by its own statement", (t) => {
  const method = "/docker.swarmkit.v1.Control/UpdateService";
  const peer: Peer = {
    identity: { nodeId: "n1", role: "swarm-manager", organization: "o" },
    local: false,
    address: "192.0.2.7",
  };
  const remote = { method: "Control.UpdateService", nodeId: "n1", address: "192.0.2.7", process: null };
  t.deepEqual(callerOf({ method, peer }), Caller.create(remote));
  const local: Peer = { identity: null, local: true, address: "", process: { uid: 1_000, pid: 7, user: "ada" } };
  const process = LocalProcess.create({ uid: 1_000, pid: 7, user: "ada" });
  t.like(callerOf({ method, peer: local }), { method: "Control.UpdateService", nodeId: "", process });
  const user: Peer = { identity: null, local: false, address: "192.0.2.8", user: "user-ada" };
  t.like(callerOf({ method: "Client/ServiceDeploy", peer: user }), {
    method: "Client.ServiceDeploy",
    user: "user-ada",
  });
  t.is(callerOf({}), null);
});

test("a component writes under its own name", async (t) => {
  const seen: Proposal[] = [];
  const proposer = {
    propose: (one: Proposal) => {
      seen.push(one);
      return Promise.resolve({ kind: "unavailable", maybe: false, message: "" } as const);
    },
  };
  await writingAs({ proposer }, Origin.ORIGIN_KEYS).proposer.propose(proposal([]));
  t.is(seen[0]?.origin, Origin.ORIGIN_KEYS);
});

test("a local process's statement about itself is parsed, and any other text means nothing", (t) => {
  const numbers = fc.integer({ min: 0, max: 0xffffffff });
  fc.assert(
    fc.property(numbers, numbers, fc.stringMatching(/^[\w.@+-]{0,32}$/), (uid, pid, user) => {
      t.deepEqual(parseCaller(callerText({ uid, pid, user })), { uid, pid, user });
    }),
  );
  fc.assert(
    fc.property(fc.string(), numbers, (text, uid) => {
      const parsed = parseCaller(text);
      const odd = callerText({ uid, pid: 1, user: text });
      // A header has no control characters, whatever a login name has.
      return (
        (parsed === undefined || parsed.user.length <= 32) &&
        /^[\x20-\x7e]*$/.test(odd) &&
        parseCaller(odd) !== undefined
      );
    }),
  );
  t.is(parseCaller("uid=4294967296;pid=1;user=a"), undefined);
});
