// Nodes' standing in the cluster by a manager's replica: who is notified of a change, and when.
import test from "ava";
import { createUsers } from "../../actors/json/users.ts";
import { watchStandings } from "../../actors/manager/standings.ts";
import {
  Cluster,
  Node,
  NodeRole,
  NodeSpec,
  NodeStatus,
  NodeStatus_State,
  PasswordHash,
  RemoveNodeRequest,
  RemoveUserRequest,
  User,
  UserRole,
} from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import { markOfSalt } from "../../runtime/ports/passwords.ts";
import type { Role } from "../../runtime/user-roles.ts";
import { call } from "../support/manager.ts";
import { world as controlWorld } from "../support/control.ts";

function nodeOf(id: string, role: NodeRole): Node {
  return Node.create({
    id,
    role,
    spec: NodeSpec.create({ desiredRole: role }),
    status: NodeStatus.create({ state: NodeStatus_State.DOWN }),
  });
}

function world() {
  const { control, env, seed, store } = controlWorld();
  const standings = watchStandings(store);
  const told: string[] = [];
  standings.onChange((ids) => told.push(ids.toSorted().join(" ")));
  seed("cluster", Cluster.create({ id: "c" }));
  seed("node", nodeOf("w", NodeRole.WORKER), nodeOf("m", NodeRole.MANAGER));
  const remove = async (nodeId: string): Promise<void> =>
    void (await control.RemoveNode(RemoveNodeRequest.create({ nodeId }), call()));
  const unused = (): Promise<never> => Promise.reject(new Error("no password is checked here"));
  const users = createUsers(env, { hash: unused, verify: unused }).handlers;
  const removeUser = async (name: string): Promise<void> =>
    void (await users.RemoveUser(RemoveUserRequest.create({ name }), call()));
  return { remove, removeUser, seed, standings, store, told };
}

test("a removal is reported in the turn in which the replica applies it, before later watchers hear of it", async (t) => {
  const { remove, standings, store, told } = world();
  told.length = 0;
  const order: string[] = [];
  standings.onChange(() => order.push(`told: ${standings.isRemoved("w")}`));
  store.watch(({ changes }) => {
    if (changes.some(({ action, table }) => table === "node" && action === "remove")) order.push("watched");
  });
  await remove("w");
  t.deepEqual(told, ["w"]);
  t.deepEqual(order, ["told: true", "watched"]);
  t.false(standings.isRemoved("m"));
});

test("a change of role is reported, and no other change of a node", (t) => {
  const { seed, standings, told } = world();
  told.length = 0;
  const status = NodeStatus.create({ state: NodeStatus_State.READY });
  seed("node", Node.patch(nodeOf("m", NodeRole.MANAGER), { status }));
  t.deepEqual(told, []);
  t.false(standings.isDemoted("m"));
  seed("node", nodeOf("m", NodeRole.WORKER));
  t.deepEqual(told, ["m"]);
  t.true(standings.isDemoted("m"));
  t.true(standings.isDemoted("unknown"), "a manager that joined in records that the log has lost has no rights");
});

test("a watcher that has stopped is notified no more", (t) => {
  const { seed, standings, told } = world();
  told.length = 0;
  standings.stop();
  seed("node", nodeOf("m", NodeRole.WORKER));
  t.deepEqual(told, []);
});

function userOf(fields: Partial<User>): User {
  const password = PasswordHash.create({ salt: Buffer.from("salt"), key: Buffer.from("key") });
  return User.create({ id: "user-ada", role: UserRole.USER_ROLE_OPERATOR, password, ...fields });
}

test("changes of a user's role, password or disabled state are reported, and a login is not", async (t) => {
  const { removeUser, seed, standings, told } = world();
  const mark = markOfSalt(Buffer.from("salt"));
  const role = (): Role | null => standings.userRole("ada", mark);
  told.length = 0;
  const tells = (user: Partial<User>, expected: Role | null, isTold = true): void => {
    seed("user", userOf(user));
    t.is(role(), expected);
    t.deepEqual(told.splice(0), isTold ? ["user-ada"] : []);
  };
  t.is(role(), null);
  tells({}, "operator");
  tells({ lastLogin: timestampOf(1) }, "operator", false);
  tells({ role: UserRole.USER_ROLE_READ_ONLY }, "read-only");
  tells({ role: UserRole.USER_ROLE_ADMIN }, "admin");
  tells({ role: UserRole.USER_ROLE_ADMIN, disabled: true }, null);
  tells({ role: UserRole.USER_ROLE_ADMIN }, "admin");
  tells({ role: UserRole.USER_ROLE_ADMIN, password: PasswordHash.create({ salt: Buffer.from("pepper") }) }, null);
  tells({ role: UserRole.USER_ROLE_AGENT }, null);
  // A record without a password has no mark that a certificate could carry.
  tells({ password: null }, null);
  t.is(standings.userRole("ada", ""), null);
  t.is(standings.userRole("bob", mark), null);
  tells({}, "operator");
  await removeUser("ada");
  t.deepEqual(told, ["user-ada"]);
  t.is(role(), null);
});
