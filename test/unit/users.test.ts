import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import type { ExecutionContext } from "ava";
import { startAgentLogins } from "../../actors/json/agent-logins.ts";
import { createUsers, setPassword } from "../../actors/json/users.ts";
import {
  AddUserRequest,
  GrantUserRequest,
  ListUsersRequest,
  RemoveUserRequest,
  SetUserPasswordRequest,
  Task,
  User,
  UserRole,
} from "../../proto/gen/messages.ts";
import { newRegistration, registrationMs } from "../../machines/json/registration.ts";
import { PasswordsBusy } from "../../runtime/ports/passwords.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { Scrypt, scryptDefaults } from "../../runtime/system/scrypt.ts";
import { workerNode } from "../support/control.ts";
import { cheapScrypt, password } from "../support/json-api.ts";
import { call, refusalOf, testManager } from "../support/manager.ts";
import { served } from "../support/served.ts";

const { USER_ROLE_ADMIN, USER_ROLE_AGENT, USER_ROLE_OPERATOR, USER_ROLE_READ_ONLY } = UserRole;

function world() {
  const manager = testManager();
  const passwords = new Scrypt(cheapScrypt);
  return { ...manager, manager, passwords, users: createUsers(manager.env, passwords).handlers };
}

test("a user is added, listed without a password, given another role and another password, and removed", async (t) => {
  const { users, store, passwords } = world();
  const local = call({ process: { uid: 1, pid: 2, user: "root" } });
  const { user } = await users.AddUser(
    AddUserRequest.create({ name: "ada", role: USER_ROLE_READ_ONLY, password }),
    local,
  );
  t.like(user, { name: "ada", role: USER_ROLE_READ_ONLY });
  const hash = store.get("user", "user-ada")?.password ?? null;
  t.true(await passwords.verify(password, hash));
  t.false(Buffer.from(hash?.key ?? []).includes(password));
  await users.GrantUser(GrantUserRequest.create({ name: "ada", role: USER_ROLE_ADMIN }), local);
  await users.SetUserPassword(SetUserPasswordRequest.create({ name: "ada", password: "another one" }), local);
  const after = store.get("user", "user-ada");
  t.is(after?.role, USER_ROLE_ADMIN);
  t.true(await passwords.verify("another one", after?.password ?? null));
  t.false(await passwords.verify(password, after?.password ?? null));
  const { users: listed } = await users.ListUsers(ListUsersRequest.create({}), local);
  t.like(listed, [{ name: "ada", role: USER_ROLE_ADMIN }]);
  t.false("password" in (listed[0] as object));
  await users.RemoveUser(RemoveUserRequest.create({ name: "ada" }), local);
  t.is(store.count("user"), 0);
});

for (const [what, request, code] of [
  ["no name", { name: "" }, Status.INVALID_ARGUMENT],
  ["a name with a blank", { name: "a b" }, Status.INVALID_ARGUMENT],
  ["a name of 65 letters", { name: "a".repeat(65) }, Status.INVALID_ARGUMENT],
  ["a name that ends in a hyphen", { name: "ada-" }, Status.INVALID_ARGUMENT],
  ["Juju's reserved name", { name: "jujuanonymous" }, Status.INVALID_ARGUMENT],
  ["no password", { password: "" }, Status.INVALID_ARGUMENT],
  ["a short password", { password: "1234567" }, Status.INVALID_ARGUMENT],
  ["a password of a kilobyte and more", { password: "x".repeat(1_025) }, Status.INVALID_ARGUMENT],
  ["no role", { role: UserRole.USER_ROLE_UNKNOWN }, Status.INVALID_ARGUMENT],
  ["the role of agents", { role: USER_ROLE_AGENT }, Status.INVALID_ARGUMENT],
  ["a name in use", { name: "there" }, Status.ALREADY_EXISTS],
] as const) {
  test(`a user with ${what} is rejected`, async (t) => {
    const { users, store } = world();
    const good = { name: "there", role: USER_ROLE_OPERATOR, password };
    await users.AddUser(AddUserRequest.create(good), call());
    const refusal = await refusalOf(() =>
      users.AddUser(AddUserRequest.create({ ...good, name: "new", ...request }), call()),
    );
    t.is(refusal?.code, code);
    t.is(store.count("user"), 1);
  });
}

test("an unknown user can neither be changed nor removed", async (t) => {
  const { users } = world();
  const name = "nobody";
  for (const ask of [
    () => users.GrantUser(GrantUserRequest.create({ name, role: USER_ROLE_ADMIN }), call()),
    () => users.SetUserPassword(SetUserPasswordRequest.create({ name, password }), call()),
    () => users.RemoveUser(RemoveUserRequest.create({ name }), call()),
  ])
    t.deepEqual(await refusalOf(ask), { code: Status.NOT_FOUND, message: "user nobody not found" });
});

test("passwords of agents go with their node or task, and users stay", async (t) => {
  const { users, manager, store, passwords } = world();
  manager.seed("node", workerNode("n1"), workerNode("n2"));
  manager.seed("task", Task.create({ id: "t1" }));
  await users.AddUser(AddUserRequest.create({ name: "ada", role: USER_ROLE_ADMIN, password }), call());
  const agents = [
    { kind: "machine", nodeId: "n1" },
    { kind: "machine", nodeId: "n2" },
    { kind: "unit", taskId: "t1" },
  ] as const;
  for (const agent of agents) await setPassword(manager.env, passwords, agent, password, call());
  manager.drop("node", "n1");
  const sweep = startAgentLogins(manager.env);
  t.teardown(() => sweep.stop());
  await new Promise((resolve) => setImmediate(resolve));
  t.deepEqual([...store.all("user")].map(({ id }) => id).toSorted(), ["node-n2", "task-t1", "user-ada"]);
  manager.drop("task", "t1");
  await new Promise((resolve) => setImmediate(resolve));
  t.deepEqual([...store.all("user")].map(({ id }) => id).toSorted(), ["node-n2", "user-ada"]);
});

test("P1: a wrong password and an unknown name cost the same derivation, P2: a right one only the first time", async (t) => {
  const asked: unknown[] = [];
  const scrypt = new Scrypt(cheapScrypt, (text, salt, options) => {
    asked.push(options);
    return Promise.resolve(createHash("sha256").update(text).update(salt).digest());
  });
  const hashed = await scrypt.hash(password);
  t.is(asked.length, 1);
  t.false(await scrypt.verify("wrong", hashed));
  t.false(await scrypt.verify("wrong", null));
  t.false(await scrypt.verify(password, null));
  t.is(asked.length, 4);
  t.true(asked.every((options) => JSON.stringify(options) === JSON.stringify(cheapScrypt)));
  t.true(await scrypt.verify(password, hashed));
  t.is(asked.length, 5);
  t.true(await scrypt.verify(password, hashed));
  t.is(asked.length, 5);
  t.false(await scrypt.verify("wrong", hashed));
  t.is(asked.length, 6);
});

test("P3: the number of queued password checks is limited", async (t) => {
  const scrypt = new Scrypt(cheapScrypt);
  const outcomes = await Promise.allSettled(Array.from({ length: 150 }, () => scrypt.verify("guess", null)));
  const busy = outcomes.filter((each) => each.status === "rejected");
  t.is(busy.length, 48);
  t.true(busy.every(({ reason }) => reason instanceof PasswordsBusy));
  t.false(await scrypt.verify("guess", null));
});

test("the production cost of a password is OWASP's recommendation", (t) => {
  t.deepEqual(scryptDefaults, { cost: 32_768, blockSize: 8, parallelism: 3 });
});

function passwordFile(t: ExecutionContext, text: string): string {
  const folder = mkdtempSync(join(tmpdir(), "muster-user-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, "password"), text);
  return join(folder, "password");
}

test("muster user adds, lists, grants, changes passwords and removes; the password is a file's first line", async (t) => {
  const { muster, manager } = await served(t);
  const file = passwordFile(t, `${password}\nsecond line\n`);
  t.deepEqual(await muster("user", "add", "--role", "operator", "--password-file", file, "ada"), {
    status: 0,
    lines: ["ada"],
    remarks: [],
  });
  const hash = manager.store.get("user", "user-ada")?.password ?? null;
  t.true(await new Scrypt(cheapScrypt).verify(password, hash));
  const listing = async () => (await muster("user", "ls", "--format", "{{.Name}} {{.Role}}")).lines;
  t.deepEqual(await listing(), ["ada operator"]);
  t.is((await muster("user", "grant", "ada", "admin")).status, 0);
  t.deepEqual(await listing(), ["ada admin"]);
  t.is((await muster("user", "passwd", "--password-file", passwordFile(t, "new password"), "ada")).status, 0);
  t.deepEqual(await muster("user", "grant", "ada", "king"), {
    status: 125,
    lines: [],
    remarks: ['muster: invalid role "king": expected read-only, operator or admin'],
  });
  t.is((await muster("user", "rm", "ada", "bob")).status, 1);
  t.deepEqual(await listing(), []);
});

test("muster user ls shows who has yet to register, and whose registration has expired", async (t) => {
  const { muster, manager } = await served(t);
  const registration = newRegistration(new Uint8Array(32).fill(1), manager.clock.now());
  const role = USER_ROLE_READ_ONLY;
  manager.seed(
    "user",
    User.create({ id: "user-ada", role }),
    User.create({ id: "user-ben", role, registration }),
    User.create({ id: "user-cy", role, registration, disabled: true }),
  );
  const statuses = async () =>
    (await muster("user", "ls", "--format", "table {{.Name}}: {{.Status}}")).lines.slice(1).map((line) => line.trim());
  t.deepEqual(await statuses(), ["ada: enabled", "ben: yet to register", "cy: disabled"]);
  manager.clock.advance(registrationMs);
  t.deepEqual(await statuses(), ["ada: enabled", "ben: registration expired", "cy: disabled"]);
});
