import test from "ava";
import { taskUsers } from "../../processes/drivers.ts";
import { UsageError } from "../../lib/user-error.ts";
import { groupRefusal, taskUser } from "../../linux/task-users.ts";
import { uidOf, userNamed } from "../../linux/user.ts";

const refused = /runs no task as root.*--user.*--allow-root/;

test("TU1: root is rejected under each of its names, unless the node allows it", (t) => {
  for (const name of ["root", "0", "root:nogroup", "0:1000", "00"]) {
    const found = taskUser(name, { fallback: "nobody", allowsRoot: false });
    t.is(found.kind, "refused", name);
    if (found.kind === "refused") t.regex(found.reason, refused);
    t.is(taskUser(name, { fallback: "nobody", allowsRoot: true }).kind, "user", name);
  }
});

test("TU2: root's group, and any group of the machine that the user is not in, is rejected unless the node allows root", (t) => {
  // Gid 2 is a group of every Linux, `bin` or `daemon`; 54321 is a group of none.
  for (const name of ["nobody:0", "nobody:root", "1234:0", "nobody:bin", "1234:2", "54321:root"]) {
    const found = taskUser(name, { fallback: "nobody", allowsRoot: false });
    t.is(found.kind, "refused", name);
    if (found.kind === "refused") t.regex(found.reason, /group.*--allow-root/, name);
    t.is(taskUser(name, { fallback: "nobody", allowsRoot: true }).kind, "user", name);
  }
  for (const name of ["nobody", `nobody:${userNamed("nobody")?.gid}`, "1234:54321", "bin:bin", "bin"])
    t.is(taskUser(name, { fallback: "nobody", allowsRoot: false }).kind, "user", name);
  t.is(
    taskUser("", { fallback: "nobody:0", allowsRoot: false }).kind,
    "refused",
    "the node's default user is checked too",
  );
});

test("TU2: a user who is in root's group by the machine's own files is rejected too", (t) => {
  const rootGroup = (found: ReturnType<typeof groupRefusal>): boolean => /root's group/.test(found ?? "");
  const user = { uid: 12, gid: 54_321, groups: [], home: "/" };
  t.is(groupRefusal("operator", user), null);
  t.true(rootGroup(groupRefusal("operator", { ...user, gid: 0 })));
  t.true(rootGroup(groupRefusal("operator", { ...user, groups: [5, 0] })));
});

test("a task without a user runs as the node's default, which may not be root either", (t) => {
  t.like(taskUser("", { fallback: "nobody", allowsRoot: false }), { kind: "user", name: "nobody" });
  t.is(taskUser("", { fallback: "root", allowsRoot: false }).kind, "refused");
  t.like(taskUser("1234", { fallback: "nobody", allowsRoot: false }), { kind: "user", name: "1234" });
  t.like(taskUser("no-such-user", { fallback: "nobody", allowsRoot: false }), {
    kind: "refused",
    reason: "there is no user no-such-user on this node",
  });
});

test("an agent that runs as root runs its tasks as nobody; one that does not, as itself", (t) => {
  t.deepEqual(taskUsers({}, true), { fallback: "nobody", allowsRoot: false });
  t.deepEqual(taskUsers({}, false), { fallback: "", allowsRoot: false });
  t.deepEqual(taskUsers({ "allow-root": true }, true), { fallback: "nobody", allowsRoot: true });
  t.throws(() => taskUsers({ "task-user": "root" }, true), { instanceOf: UsageError, message: refused });
  t.throws(() => taskUsers({ "task-user": "no-such-user" }, true), { instanceOf: UsageError, message: /no user/ });
  t.not(uidOf("nobody"), null);
});
