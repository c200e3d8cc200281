import test from "ava";
import { taskUsers } from "../../cli/processes/drivers.ts";
import { UsageError } from "../../cli/command.ts";
import { taskUser } from "../../node/task-users.ts";
import { uidOf } from "../../node/user.ts";

const refused = /runs no task as root.*--user.*--allow-root/;

test("TU1: root is refused by every name that it has, unless the node allows it", (t) => {
  for (const name of ["root", "0", "root:nogroup", "0:1000", "00"]) {
    const found = taskUser(name, { fallback: "nobody", allowsRoot: false });
    t.is(found.kind, "refused", name);
    if (found.kind === "refused") t.regex(found.reason, refused);
    t.is(taskUser(name, { fallback: "nobody", allowsRoot: true }).kind, "user", name);
  }
});

test("a task that names no user runs as the node's choice, which may not be root either", (t) => {
  t.like(taskUser("", { fallback: "nobody", allowsRoot: false }), { kind: "user", name: "nobody" });
  t.is(taskUser("", { fallback: "root", allowsRoot: false }).kind, "refused");
  t.like(taskUser("1234", { fallback: "nobody", allowsRoot: false }), { kind: "user", name: "1234" });
  t.like(taskUser("no-such-user", { fallback: "nobody", allowsRoot: false }), {
    kind: "refused",
    reason: "there is no user no-such-user on this node",
  });
});

test("an agent that runs as root has its tasks run as nobody; one that does not, as itself", (t) => {
  t.deepEqual(taskUsers({}, true), { fallback: "nobody", allowsRoot: false });
  t.deepEqual(taskUsers({}, false), { fallback: "", allowsRoot: false });
  t.deepEqual(taskUsers({ "allow-root": true }, true), { fallback: "nobody", allowsRoot: true });
  t.throws(() => taskUsers({ "task-user": "root" }, true), { instanceOf: UsageError, message: refused });
  t.throws(() => taskUsers({ "task-user": "no-such-user" }, true), { instanceOf: UsageError, message: /no user/ });
  t.not(uidOf("nobody"), null);
});
