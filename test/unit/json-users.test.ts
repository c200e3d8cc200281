// How clients of the JSON API list and manage users, with their last logins.
import test from "ava";
import { timeMs } from "../../proto/time.ts";
import { DisableUserRequest, UserRole } from "../../proto/gen/messages.ts";
import type { Identity } from "../../runtime/ports/json-api.ts";
import { failureOf, jsonWorld, type Reply } from "../support/json-world.ts";
import { jsonWorld as listening, password } from "../support/json-api.ts";
import { call } from "../support/manager.ts";
import { until } from "../fixtures/until.ts";

const ben: Identity = { kind: "user", name: "ben", role: "read-only" };
const results = (reply: Reply): Reply[] => reply["results"] as Reply[];

test("an admin adds, lists, disables, enables and removes users, with one result for each", async (t) => {
  const { connect, store } = await jsonWorld(t);
  const { ask } = connect("V1");
  const manage = (request: string, params: object) => ask({ type: "UserManager", version: 3, request, params });
  const added = await manage("AddUser", {
    users: [
      { username: "ben", "display-name": "Ben B.", password },
      { username: "no name", password },
      { username: "cy" },
    ],
  });
  t.like(results(added), [{ tag: "user-ben" }, { error: { code: "bad request" } }, { tag: "user-cy" }]);
  t.deepEqual(
    results(added).map((result) => "secret-key" in result),
    [false, false, true],
    "a user without a password has yet to register",
  );
  t.is(store.get("user", "user-ben")?.role, UserRole.USER_ROLE_READ_ONLY);
  const entities = [{ tag: "user-ben" }, { tag: "user-nobody" }];
  const info = results(await manage("UserInfo", { entities }));
  t.like(info[0], { result: { username: "ben", "display-name": "Ben B.", access: "login", disabled: false } });
  t.false("last-connection" in ((info[0] ?? {})["result"] as object));
  t.like(info[1], { error: { code: "user not found" } });
  t.deepEqual(results(await manage("DisableUser", { entities: [{ tag: "user-ben@local" }] })), [{}]);
  t.true(store.get("user", "user-ben")?.disabled);
  t.is(results(await manage("UserInfo", {})).length, 1, "a disabled user is shown on request");
  const all = results(await manage("UserInfo", { "include-disabled": true }));
  t.like(all, [{ result: { username: "ben", disabled: true } }, { result: { username: "cy", disabled: false } }]);
  await manage("EnableUser", { entities: [{ tag: "user-ben" }] });
  t.false(store.get("user", "user-ben")?.disabled);
  for (const request of ["DisableUser", "RemoveUser"])
    t.like(results(await manage(request, { entities: [{ tag: "user-admin" }] })), [
      { error: { code: "operation is blocked" } },
    ]);
  const entitiesToRemove = ["machine-0", "user-ben", "user-cy"].map((tag) => ({ tag }));
  const wrong = await manage("RemoveUser", { entities: entitiesToRemove });
  t.like(results(wrong), [{ error: { code: "bad request" } }, {}, {}]);
  t.is(store.count("user"), 0);
});

test("1.24's version of it has the same keys, and no RemoveUser", async (t) => {
  const { connect } = await jsonWorld(t);
  const { ask } = connect("V0");
  const Users = [{ username: "ben", "display-name": "", password }];
  t.deepEqual(await ask({ type: "UserManager", request: "AddUser", params: { Users } }), {
    results: [{ tag: "user-ben" }],
  });
  const without = await ask({ type: "UserManager", request: "AddUser", params: { Users: [{ username: "cy" }] } });
  t.like(results(without), [{ error: { code: "not supported" } }], "its clients have no registration");
  const Entities = [{ Tag: "user-ben" }];
  const info = await ask({ type: "UserManager", request: "UserInfo", params: { Entities } });
  t.like(results(info), [{ result: { username: "ben", "created-by": "admin" } }]);
  const removed = failureOf(() => ask({ type: "UserManager", request: "RemoveUser", params: { Entities } }));
  t.like(await removed, { code: "not implemented" });
});

test("a user who is not an admin can access only their own account, and learns no other name", async (t) => {
  const { connect, store, passwords } = await jsonWorld(t);
  const admin = connect("V1");
  const users = ["ben", "ada"].map((username) => ({ username, password }));
  await admin.ask({ type: "UserManager", version: 3, request: "AddUser", params: { users } });
  const { ask } = connect("V1", ben);
  const manage = (request: string, params: object) => ask({ type: "UserManager", version: 3, request, params });
  t.like(results(await manage("UserInfo", {})), [{ result: { username: "ben" } }]);
  const entities = ["user-ada", "user-nobody"].map((tag) => ({ tag }));
  const [there, absent] = results(await manage("UserInfo", { entities }));
  t.deepEqual(there, absent);
  t.like(there, { error: { code: "unauthorized access" } });
  const setting = (...names: readonly string[]) =>
    manage("SetPassword", { changes: names.map((tag) => ({ tag, password: "another one" })) });
  for (const names of [["user-ada"], ["user-nobody"], ["user-ben", "user-ada"]])
    t.like(await failureOf(() => setting(...names)), { code: "unauthorized access" });
  t.deepEqual(results(await setting("user-ben")), [{}]);
  t.true(await passwords.verify("another one", store.get("user", "user-ben")?.password ?? null));
  t.true(await passwords.verify(password, store.get("user", "user-ada")?.password ?? null));
  for (const request of ["AddUser", "DisableUser", "EnableUser", "RemoveUser"])
    t.like(await failureOf(() => manage(request, { entities, users })), { code: "unauthorized access" });
  const agent = connect("V1", { kind: "machine", nodeId: "n1" });
  const asAgent = failureOf(() => agent.ask({ type: "UserManager", version: 3, request: "UserInfo" }));
  t.like(await asAgent, { code: "unauthorized access" });
});

test("access to the model is a role: it is granted and revoked step by step", async (t) => {
  const { connect, store, feed } = await jsonWorld(t);
  const { ask } = connect("V1");
  await ask({
    type: "UserManager",
    version: 3,
    request: "AddUser",
    params: { users: [{ username: "ben", password }] },
  });
  const modify = async (action: string, access: string, user = "user-ben", model = `model-${feed.modelUuid}`) => {
    const changes = [{ "user-tag": user, action, access, "model-tag": model }];
    const params = { changes };
    const [result] = results(await ask({ type: "ModelManager", version: 9, request: "ModifyModelAccess", params }));
    return (result?.["error"] as { code: string } | undefined)?.code ?? store.get("user", "user-ben")?.role;
  };
  t.is(await modify("grant", "write"), UserRole.USER_ROLE_OPERATOR);
  t.is(await modify("grant", "read"), UserRole.USER_ROLE_OPERATOR, "her existing role stays");
  t.is(await modify("grant", "admin"), UserRole.USER_ROLE_ADMIN);
  t.is(await modify("revoke", "admin"), UserRole.USER_ROLE_OPERATOR);
  t.is(await modify("revoke", "write"), UserRole.USER_ROLE_READ_ONLY);
  t.is(await modify("revoke", "read"), "not supported");
  t.is(await modify("grant", "all"), "bad request");
  t.is(await modify("grant", "write", "user-nobody"), "user not found");
  t.is(await modify("grant", "write", "user-admin"), "operation is blocked");
  t.is(await modify("grant", "write", "user-ben", "model-x"), "not found");
});

test("a disabled user is disconnected and rejected as with a wrong password; the last login is written once a minute and shown", async (t) => {
  const { addUser, connect, store, clock, users } = await listening(t);
  await addUser("ada");
  const first = await connect();
  const login = await first.login();
  t.false("last-connection" in ((login["response"] as Reply)["user-info"] as object));
  const lastLogin = (): number => timeMs(store.get("user", "user-ada")?.lastLogin ?? null);
  await until("the login to be written", () => lastLogin() > 0);
  const at = lastLogin();
  clock.advance(30_000);
  const again = await (await connect()).login();
  const told = ((again["response"] as Reply)["user-info"] as Reply)["last-connection"];
  t.is(told, new Date(at).toISOString());
  t.is(lastLogin(), at, "no minute has passed");
  clock.advance(31_000);
  await (await connect()).login();
  await until("the later login to be written", () => lastLogin() > at);
  await users.DisableUser(DisableUserRequest.create({ name: "ada", disabled: true }), call());
  t.is(await first.closed, 1008);
  const refused = await (await connect()).login();
  const wrong = await (await connect()).login("user-nobody");
  t.is(refused["error-code"], "unauthorized access");
  t.deepEqual({ ...refused, "request-id": 0 }, { ...wrong, "request-id": 0 });
  await users.DisableUser(DisableUserRequest.create({ name: "ada" }), call());
  t.is((await (await connect()).login())["error"], undefined);
});

test("more than a thousand entries in one request are rejected before one of them is processed", async (t) => {
  const { connect, store } = await jsonWorld(t);
  const users = Array.from({ length: 1_001 }, (_, at) => ({ username: `u${at}`, password }));
  const adding = failureOf(() =>
    connect("V1").ask({ type: "UserManager", version: 3, request: "AddUser", params: { users } }),
  );
  t.like(await adding, { code: "quota limit exceeded" });
  t.is(store.count("user"), 0);
});
