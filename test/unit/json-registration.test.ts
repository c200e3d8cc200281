// `juju add-user` and `juju register`: a user without a password sets one over HTTP, once, by proving a secret key.
import test, { type ExecutionContext } from "ava";
import nacl from "tweetnacl";
import { startJsonApi } from "../../actors/json/api.ts";
import { createLogins } from "../../actors/json/logins.ts";
import { setPassword } from "../../actors/json/users.ts";
import { controllerUuid } from "../../edges/juju/model.ts";
import { registeredTicketMs } from "../../edges/juju/registration.ts";
import { identifiersInCookies } from "../../edges/juju/tickets.ts";
import { refusalsPerMinute } from "../../machines/json/login-rate.ts";
import { newRegistration, registrationMs, registrationsMax } from "../../machines/json/registration.ts";
import {
  AddUserRequest,
  DisableUserRequest,
  ListUsersRequest,
  RemoveUserRequest,
  ResetUserRequest,
  User,
  UserRole,
} from "../../proto/gen/messages.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { jsonWorld, password, type Reply, type TestClient } from "../support/json-api.ts";
import { post } from "../support/json-post.ts";
import { call, refusalOf } from "../support/manager.ts";

const chosen = "a password of her own";

/** The request of `juju register`, as Go's client writes it. */
function request(
  secretKey: Uint8Array,
  { user = "user-ben", payload = JSON.stringify({ password: chosen }) as string, nonce = nacl.randomBytes(24) } = {},
): string {
  const box = nacl.secretbox(Uint8Array.from(Buffer.from(payload)), nonce, secretKey);
  return JSON.stringify({
    user,
    nonce: Buffer.from(nonce).toString("base64"),
    "cipher-text": Buffer.from(box).toString("base64"),
  });
}

function opened({ nonce, "cipher-text": box }: Readonly<Record<string, unknown>>, secretKey: Uint8Array): unknown {
  const bytes = (text: unknown): Uint8Array => Uint8Array.from(Buffer.from(text as string, "base64"));
  const payload = nacl.secretbox.open(bytes(box), bytes(nonce), secretKey);
  return payload === null ? null : JSON.parse(Buffer.from(payload).toString());
}

/** A cluster in which `ben` is to register; his secret key. */
async function world(t: ExecutionContext) {
  const json = await jsonWorld(t, { facades: "all" });
  await json.addUser("ada");
  const add = async (name: string): Promise<Uint8Array> => {
    const role = UserRole.USER_ROLE_READ_ONLY;
    const added = await json.users.AddUser(AddUserRequest.create({ name, role, registers: true }), call());
    return added.registrationKey;
  };
  const reset = async (name: string): Promise<Uint8Array> =>
    (await json.users.ResetUser(ResetUserRequest.create({ name }), call())).registrationKey;
  const ben = (): User | undefined => json.store.get("user", "user-ben");
  const secretKey = await add("ben");
  const register = (body: string, headers = {}) => post(json, "/register", body, headers);
  const logsIn = async (name: string, credentials: string): Promise<boolean> =>
    !("error" in (await (await json.connect()).login(`user-${name}`, credentials)));
  return { ...json, add, reset, ben, secretKey, register, logsIn };
}

const refused = {
  status: 401,
  body: {
    error: { code: "unauthorized access", message: "invalid registration: it was used or has expired" },
  },
};

test("an admin adds a user without a password, and the user sets one with the key that the admin received", async (t) => {
  const { connect, register, rootPem, store, logsIn } = await world(t);
  const admin = await connect();
  await admin.login();
  const manage = async (id: number, name: string, params: object): Promise<Reply> => {
    const reply = await admin.ask({ "request-id": id, type: "UserManager", version: 3, request: name, params });
    return (reply["response"] as { results: Reply[] }).results[0] ?? {};
  };
  const added = await manage(2, "AddUser", { users: [{ username: "cy", "display-name": "Cy" }] });
  t.is(added["tag"], "user-cy");
  const secretKey = Uint8Array.from(Buffer.from(added["secret-key"] as string, "base64"));
  t.is(secretKey.length, 32);
  t.false(await logsIn("cy", ""));
  t.false(await logsIn("cy", password));

  const { status, body, cookie } = await register(request(secretKey, { user: "user-cy@local" }));
  t.is(status, 200);
  const clusterId = [...store.all("cluster")][0]?.id ?? "";
  t.deepEqual(opened(body, secretKey), { "ca-cert": rootPem, "controller-uuid": controllerUuid(clusterId) });
  t.true(await logsIn("cy", chosen));
  t.is(store.get("user", "user-cy")?.role, UserRole.USER_ROLE_READ_ONLY);
  t.is(store.get("user", "user-cy")?.registration, null);
  t.not(cookie, "");

  // `juju change-user-password --reset`
  const again = await manage(3, "ResetPassword", { entities: [{ tag: "user-cy" }] });
  const resetKey = Uint8Array.from(Buffer.from(again["secret-key"] as string, "base64"));
  t.notDeepEqual(resetKey, secretKey);
  t.false(await logsIn("cy", chosen));
  t.is((await register(request(resetKey, { user: "user-cy" }))).status, 200);
  t.true(await logsIn("cy", chosen));
  for (const entity of ["user-ada", "user-nobody", "machine-0"]) {
    const { error } = await manage(4, "ResetPassword", { entities: [{ tag: entity }] });
    t.truthy(error, entity);
  }
});

test("the answer's cookie logs its user in for two minutes, and nobody else", async (t) => {
  const { clock, connect, register, secretKey } = await world(t);
  const { cookie } = await register(request(secretKey));
  const macaroons = [identifiersInCookies(cookie).map((identifier) => ({ identifier }))];
  t.is(macaroons[0]?.length, 1);
  const login = (client: TestClient, tag: string) =>
    client.ask({
      "request-id": 1,
      type: "Admin",
      version: 3,
      request: "Login",
      params: { "auth-tag": tag, credentials: "", "bakery-version": 3, "client-version": "3.6.11", macaroons },
    });
  t.like(await login(await connect(), "user-ben"), { response: { "user-info": { identity: "user-ben" } } });
  t.like(await login(await connect(), "user-ada"), { response: { "discharge-required": { location: "juju" } } });
  clock.advance(registeredTicketMs);
  t.like(await login(await connect(), "user-ben"), { response: { "discharge-required": { location: "juju" } } });
});

test("the answer's cookie also works at the password form: its user is not prompted a third time", async (t) => {
  // Juju's command stores it for the address, and looks for a login's macaroons under the controller's UUID.
  const { clock, connect, env, passwords, port, rootPem, register, reset, secretKey, users } = await world(t);
  const login = async (tag: string, macaroons: object[][] = []): Promise<Record<string, unknown>> => {
    const params = { "auth-tag": tag, credentials: "", "bakery-version": 3, "client-version": "3.6.11", macaroons };
    const asked = { "request-id": 1, type: "Admin", version: 3, request: "Login", params };
    return (await (await connect()).ask(asked))["response"] as Record<string, unknown>;
  };
  /** Requests a discharge as a redirected client does; returns the status and the macaroons. */
  const discharge = async (tag: string, cookie: string) => {
    const required = (await login(tag))["discharge-required"] as { caveats: { cid: string }[] };
    const query = new URLSearchParams({ id: required.caveats[0]?.cid ?? "" });
    const { status, body } = await post({ port, rootPem }, `/auth/discharge?${query.toString()}`, "", { cookie });
    return { status, macaroons: [[required, body["Macaroon"] as object]] };
  };
  const { cookie } = await register(request(secretKey));
  const { status, macaroons } = await discharge("user-ben", `a=b; ${cookie}`);
  t.is(status, 200);
  t.like(await login("user-ben", macaroons), { "user-info": { identity: "user-ben" } });
  t.is((await discharge("user-ada", cookie)).status, 407, "another user");
  t.is((await discharge("user-ben", "")).status, 407, "no cookie");
  t.is((await discharge("user-ben", cookie.replace("=", "=e30"))).status, 407, "another cookie");

  const disable = (disabled: boolean) =>
    users.DisableUser(DisableUserRequest.create({ name: "ben", disabled }), call());
  await disable(true);
  t.is((await discharge("user-ben", cookie)).status, 407, "a disabled user");
  t.like(await login("user-ben", macaroons), { "discharge-required": { location: "juju" } });
  await disable(false);

  const second = (await register(request(await reset("ben")))).cookie;
  t.is((await discharge("user-ben", cookie)).status, 407, "the cookie of an earlier registration");
  const renewed = await discharge("user-ben", second);
  t.is(renewed.status, 200);
  clock.advance(registeredTicketMs);
  t.is((await discharge("user-ben", second)).status, 407, "two minutes later");
  t.like(await login("user-ben", renewed.macaroons), { "discharge-required": { location: "juju" } });

  const third = (await register(request(await reset("ben")))).cookie;
  await setPassword(env, passwords, { kind: "user", name: "ben" }, "set by an admin", call());
  t.is((await discharge("user-ben", third)).status, 407, "another password");
});

test("RE1: all callers without the key get the same rejection, change nothing, and cost no derivation", async (t) => {
  const { add, ben, derived, register, secretKey, store } = await world(t);
  const others = await add("cy");
  const before = [store.version, derived.passwords];
  const good = JSON.parse(request(secretKey)) as { user: string; nonce: string; "cipher-text": string };
  const changed = (text: string): string => {
    const bytes = Buffer.from(text, "base64");
    bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
    return bytes.toString("base64");
  };
  for (const [what, body] of [
    ["another key", request(nacl.randomBytes(32))],
    ["an empty key", request(new Uint8Array(32))],
    ["another user's key", request(others)],
    ["the key with another user's name", request(secretKey, { user: "user-cy" })],
    ["a user who has a password", request(secretKey, { user: "user-ada" })],
    ["nobody", request(secretKey, { user: "user-nobody" })],
    ["an agent", request(secretKey, { user: "machine-0" })],
    ["a long name", request(secretKey, { user: `user-${"x".repeat(300)}` })],
    ["a changed box", JSON.stringify({ ...good, "cipher-text": changed(good["cipher-text"]) })],
    ["a truncated box", JSON.stringify({ ...good, "cipher-text": good["cipher-text"].slice(0, -8) })],
    ["another nonce", JSON.stringify({ ...good, nonce: changed(good.nonce) })],
  ] as const)
    t.like(await register(body), { ...refused, cookie: "" }, what);
  t.deepEqual([store.version, derived.passwords], before);
  t.not(ben()?.registration, null);
  t.is((await register(JSON.stringify(good))).status, 200);
});

test("an invalid registration is reported, and pages of other origins are rejected", async (t) => {
  const { ben, register, secretKey, store, port, rootPem } = await world(t);
  const good = request(secretKey);
  const before = store.version;
  const short = { ...(JSON.parse(good) as object), nonce: Buffer.alloc(23).toString("base64") };
  const bare = { ...(JSON.parse(good) as object), "cipher-text": Buffer.alloc(15).toString("base64") };
  const shapes = [short, bare, {}, null, [], 3, { user: 1, nonce: [], "cipher-text": {} }].map((each) =>
    JSON.stringify(each),
  );
  for (const body of ["", "{", good.slice(0, 40), ...shapes])
    t.like(await register(body), { status: 400, body: { error: { code: "bad request" } } }, body);
  t.is((await register(request(secretKey, { payload: "x".repeat(20_000) }))).status, 413);
  t.is((await register(good, { origin: "https://evil.example.com" })).status, 403);
  t.is((await post({ port, rootPem }, "/register", "", {}, "GET")).status, 405);
  t.is((await post({ port, rootPem }, "/registers", good)).status, 426);
  t.is(store.version, before);
  t.not(ben()?.registration, null);
});

test("RG1: a key works once, also when it is sent twice at the same moment", async (t) => {
  const { add, logsIn, register, secretKey } = await world(t);
  const body = request(secretKey);
  t.is((await register(body)).status, 200);
  t.like(await register(body), refused, "the same bytes");
  t.like(await register(request(secretKey, { payload: JSON.stringify({ password: "another one" }) })), refused);
  t.true(await logsIn("ben", chosen));

  const theirs = await add("cy");
  const passwords = ["the first password", "the second password"];
  const answers = await Promise.all(
    passwords.map((each) =>
      register(request(theirs, { user: "user-cy", payload: JSON.stringify({ password: each }) })),
    ),
  );
  const statuses = answers.map(({ status }) => status);
  t.deepEqual(new Set(statuses), new Set([200, 401]));
  t.true(await logsIn("cy", passwords[statuses.indexOf(200)] ?? ""));
  t.false(await logsIn("cy", passwords[statuses.indexOf(401)] ?? ""));
});

test("RG2: a key expires after a day, is invalid while its user is disabled, and goes with its user", async (t) => {
  const { add, clock, register, reset, secretKey, users } = await world(t);
  const late = await add("cy");
  clock.advance(registrationMs - 1_000);
  t.is((await register(request(secretKey))).status, 200);
  clock.advance(1_000);
  t.like(await register(request(late, { user: "user-cy" })), refused);

  const renewed = await reset("cy");
  const disable = (disabled: boolean) => users.DisableUser(DisableUserRequest.create({ name: "cy", disabled }), call());
  await disable(true);
  t.like(await register(request(renewed, { user: "user-cy" })), refused);
  const failure = await refusalOf(() => users.ResetUser(ResetUserRequest.create({ name: "cy" }), call()));
  t.is(failure?.code, Status.FAILED_PRECONDITION);
  await disable(false);
  t.is((await register(request(renewed, { user: "user-cy" }))).status, 200);

  const gone = await reset("cy");
  await users.RemoveUser(RemoveUserRequest.create({ name: "cy" }), call());
  t.like(await register(request(gone, { user: "user-cy" })), refused);
});

test("RG1: a new registration or password invalidates the previous one", async (t) => {
  const { env, logsIn, passwords, register, reset, secretKey } = await world(t);
  const second = await reset("ben");
  t.like(await register(request(secretKey)), refused);
  await setPassword(env, passwords, { kind: "user", name: "ben" }, "set by an admin", call());
  t.like(await register(request(second)), refused);
  t.true(await logsIn("ben", "set by an admin"));
});

test("only the holder of the key learns that a password is invalid, and the key stays valid", async (t) => {
  const { register, secretKey } = await world(t);
  for (const payload of ['{"password":"short"}', "{}", "not JSON", "null", '{"password":3}'])
    t.is((await register(request(secretKey, { payload }))).status, 400, payload);
  t.is((await register(request(secretKey))).status, 200);
});

test("a flood of guesses is delayed before it is checked, and the key works after it", async (t) => {
  const { clock, derived, register, secretKey, store } = await world(t);
  const before = [store.version, derived.passwords];
  for (let tries = 0; tries < refusalsPerMinute; tries += 1)
    t.is((await register(request(nacl.randomBytes(32)))).status, 401);
  const answers = await Promise.all(Array.from({ length: 50 }, () => register(request(nacl.randomBytes(32)))));
  t.true(answers.every(({ status, body }) => status === 503 && JSON.stringify(body).includes("try again")));
  t.is((await register(request(secretKey))).status, 503, "guesses delay every caller from the same address");
  t.deepEqual([store.version, derived.passwords], before);
  clock.advance(60_000);
  t.is((await register(request(secretKey))).status, 200);
});

test("a registration survives the manager that issued it, and waits while there is no leader", async (t) => {
  const { ben, env, manager, passwords, register, secretKey } = await world(t);
  manager.leaderless = true;
  t.is((await register(request(secretKey))).status, 503);
  manager.leaderless = false;
  t.not(ben()?.registration, null);
  // Another manager has the log, and nothing of this one's memory.
  const other = startJsonApi(env, createLogins(env, passwords));
  t.teardown(() => other.stop());
  const attempt = { name: { kind: "user", name: "ben" }, address: "192.0.2.7" } as const;
  const outcome = await other.register({
    ...attempt,
    open: (key) => (Buffer.compare(key, secretKey) === 0 ? chosen : null),
  });
  t.is(outcome.kind, "registered");
  t.like(await register(request(secretKey)), refused);
});

test("RG3: the number of pending registrations is limited; expired ones do not count", async (t) => {
  const { add, clock, manager, reset, store, users } = await world(t);
  const waiting = newRegistration(new Uint8Array(32).fill(1), clock.now() + 1_000);
  const rest = registrationsMax - 1;
  manager.seed(
    "user",
    ...Array.from({ length: rest }, (_, at) =>
      User.create({ id: `user-u${at}`, role: UserRole.USER_ROLE_READ_ONLY, registration: waiting }),
    ),
  );
  t.is((await refusalOf(() => add("one-more")))?.code, Status.RESOURCE_EXHAUSTED);
  t.is((await refusalOf(() => reset("ada")))?.code, Status.RESOURCE_EXHAUSTED);
  t.is((await reset("u1")).length, 32, "the place is her own");
  clock.advance(registrationMs);
  t.is((await add("one-more")).length, 32);
  const { users: listed } = await users.ListUsers(ListUsersRequest.create({}), call());
  t.is(listed.length, store.count("user"));
});
