// Logins of Juju's command: it sends no password over the WebSocket, but authenticates over HTTP and returns with a macaroon.
import test from "ava";
import { setPassword } from "../../actors/json/users.ts";
import { identifiersInCookies, ticketMs } from "../../edges/juju/tickets.ts";
import { DisableUserRequest } from "../../proto/gen/messages.ts";
import { jsonWorld, password, type TestClient } from "../support/json-api.ts";
import { post, statusAfterWhole } from "../support/json-post.ts";
import { call } from "../support/manager.ts";

type World = Awaited<ReturnType<typeof jsonWorld>>;

const form = (user: string, secret = password): string => JSON.stringify({ form: { user, password: secret } });

const login = (client: TestClient, params: object) =>
  client.ask({
    "request-id": 1,
    type: "Admin",
    version: 3,
    request: "Login",
    params: { "auth-tag": "user-ada", credentials: "", "bakery-version": 3, "client-version": "3.6.11", ...params },
  });

/** As a client that prompts its user for the password; returns the macaroon with which it comes back. */
async function discharged(world: World, user = "ada"): Promise<Record<string, unknown>> {
  const { body } = await post(world, "/auth/form", form(user));
  const { value } = body["token"] as { value: string };
  const token64 = Buffer.from(value, "base64").toString("base64url");
  // As Go's client writes it.
  const given = await post(world, `/auth/discharge?id=password&token64=${token64}&token-kind=juju_userpass`, "");
  return given.body["Macaroon"] as Record<string, unknown>;
}

test("a login without a password is sent to a form, whose macaroon logs in until the password changes", async (t) => {
  const world = await jsonWorld(t);
  const { connect, addUser, port, env, manager, passwords } = world;
  await addUser("ada");
  await addUser("ben");
  const asked = await login(await connect(), {});
  t.like(asked, { response: { "discharge-required": { caveats: [{ cl: `https://127.0.0.1:${port}/auth` }] } } });
  t.false("error" in asked);
  t.false("facades" in (asked["response"] as object));
  const required = await post(world, "/auth/discharge", "id=password");
  t.like(required, {
    status: 407,
    body: { Code: "interaction required", Info: { InteractionMethods: { juju_userpass: { url: "/auth/form" } } } },
  });
  const macaroon = await discharged(world);
  const macaroons = [[{ identifier: "login" }, macaroon]];
  t.like(await login(await connect(), { macaroons }), { response: { "user-info": { identity: "user-ada" } } });
  // Not for another user, and not without its defining part.
  t.like(await login(await connect(), { macaroons, "auth-tag": "user-ben" }), {
    response: { "discharge-required-error": "a password is required" },
  });
  const made = [[{ ...macaroon, identifier: "0".repeat(64) }]];
  t.like(await login(await connect(), { macaroons: made }), {
    response: { "discharge-required": { location: "juju" } },
  });

  const other = await discharged(world);
  await setPassword(env, passwords, { kind: "user", name: "ada" }, "another horse", call());
  t.like(await login(await connect(), { macaroons: [[other]] }), {
    response: { "discharge-required": { location: "juju" } },
  });
  const bens = [[await discharged(world, "ben")]];
  t.like(await login(await connect(), { macaroons: bens, "auth-tag": "user-ben" }), {
    response: { "user-info": { identity: "user-ben" } },
  });
  manager.clock.advance(ticketMs);
  t.like(await login(await connect(), { macaroons: bens, "auth-tag": "user-ben" }), {
    response: { "discharge-required": { location: "juju" } },
  });
});

test("a disabled user gets no ticket; clients that cannot come back learn that a password is missing", async (t) => {
  const world = await jsonWorld(t);
  const { connect, addUser, users } = world;
  await addUser("ada");
  const macaroons = [[await discharged(world)]];
  await users.DisableUser(DisableUserRequest.create({ name: "ada", disabled: true }), call());
  t.like(await login(await connect(), { macaroons }), { response: { "discharge-required": { location: "juju" } } });
  t.like(await login(await connect(), { "bakery-version": 0 }), { "error-code": "no credentials provided" });
  t.like(await login(await connect(), { "auth-tag": "" }), { "error-code": "no credentials provided" });
});

test("the form rejects wrong passwords, other pages, other methods, and invalid or oversized forms", async (t) => {
  const world = await jsonWorld(t);
  await world.addUser("ada");
  t.like(await post(world, "/auth/form", form("ada", "guess")), { status: 401, body: { Code: "unauthorized access" } });
  t.like(await post(world, "/auth/form", form("nobody")), { status: 401, body: { Code: "unauthorized access" } });
  t.like(await post(world, "/auth/form", form("ada"), { origin: "https://evil.example.com" }), { status: 403 });
  t.like(await post(world, "/auth/form", "user=ada"), { status: 400 });
  t.like(await post(world, "/auth/form", "{}"), { status: 400 });
  t.like(await post(world, "/auth/form", form("ada", "x".repeat(20_000))), { status: 413 });
  t.regex(await statusAfterWhole(world.port, "/auth/form", 1_000_000), /^HTTP\/1\.1 413 /);
  t.like(await post(world, "/auth/discharge", "id=password&token=guess"), { status: 401 });
  t.like(await post(world, "/auth", ""), { status: 426 });
});

test("macaroons are found in cookies, and invalid ones are skipped", (t) => {
  const cookie = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64");
  const header = `a=b; macaroon-1=${cookie([{ identifier: "x" }, { i: "y" }, 3])}; macaroon-2=!; macaroon-3=${cookie(null)}`;
  t.deepEqual(identifiersInCookies(header), ["x", "y"]);
  t.deepEqual(identifiersInCookies(""), []);
});
