// The web interface of a manager on its TLS port: logins, their end, and connections without one. The users are made up.
import { connect } from "node:tls";
import test, { type ExecutionContext } from "ava";
import { createAdmission, type AdmissionLimits } from "../../edges/grpc/admission/admission.ts";
import { ticketMs, Tickets, userTicketsMax } from "../../edges/juju/tickets.ts";
import { headersTimeoutMs, managerUserSocketsMax, sessionMs } from "../../edges/ui/limits.ts";
import { LoginDoor, type LoggedInUser } from "../../edges/ui/login-door.ts";
import { listenPages } from "../../edges/ui/tls-listener.ts";
import { createLocalIdentity } from "../../lib/pki/index.ts";
import { until } from "../fixtures/until.ts";
import { UiHello } from "../../proto/gen/messages.ts";
import type { Identity, LoginAttempt, LoginOutcome } from "../../runtime/ports/json-api.ts";
import { connectPage, cookieIn, fetched, type Fetched } from "../support/page-client.ts";
import { statusAfterWhole } from "../support/json-post.ts";
import { patient } from "../support/slowness.ts";
import { telemetry } from "../support/grpc-world.ts";

test.beforeEach((t) => t.timeout(patient(20_000)));

const ada: Identity = { kind: "user", name: "ada", role: "operator" };

async function scene(
  t: ExecutionContext,
  limits: Partial<AdmissionLimits> = {},
  check: (attempt: LoginAttempt) => LoginOutcome = ({ password }) =>
    password === "right" ? { kind: "accepted", identity: ada, lastLoginMs: null } : { kind: "refused" },
) {
  const state = { now: 0, mark: "first" };
  const attempts: LoginAttempt[] = [];
  const opened: LoggedInUser[] = [];
  const gauges = new Map<string, number>();
  const { certificatePem, keyPem } = await createLocalIdentity(Date.now());
  const { ports } = telemetry();
  const listener = await listenPages({
    host: "127.0.0.1",
    port: 0,
    credentials: { certificatePem, keyPem, acceptedPem: certificatePem },
    telemetry: {
      ...ports,
      metrics: { ...ports.metrics, gauge: (name) => ({ set: (value) => gauges.set(name, value) }) },
    },
    admission: createAdmission(ports, limits),
    door: new LoginDoor({
      port: 1,
      checkLogin(attempt) {
        attempts.push(attempt);
        return Promise.resolve(check(attempt));
      },
      tickets: new Tickets(
        { standing: (name) => ({ identity: { ...ada, ...name } as Identity, mark: state.mark }) },
        { monotonic: () => state.now },
      ),
      open(user) {
        opened.push(user);
        return { hello: UiHello.create({ user: user.name }), backend: { call: () => new Promise(() => undefined) } };
      },
    }),
  });
  t.teardown(() => listener.close());
  const base = `https://127.0.0.1:${listener.port}/`;
  return {
    state,
    attempts,
    opened,
    gauges,
    base,
    listener,
    login: (body: string, cookie = ""): Promise<Fetched> =>
      fetched(`${base}login`, { method: "POST", headers: { origin: base.slice(0, -1), cookie }, body }),
  };
}

test("LD1: a login lasts twelve hours, and not beyond the password with which it began", async (t) => {
  const { state, base, login, opened } = await scene(t);
  const cookie = cookieIn(await login("name=ada&password=right"));
  t.true(sessionMs < ticketMs);
  state.now = sessionMs - 1_000;
  t.is((await fetched(base, { headers: { cookie } })).status, 200);
  const page = await connectPage(base, { cookie });
  await page.hello;
  page.socket.terminate();
  t.like(opened[0], { name: "ada", role: "operator", mark: "first", leftMs: 1_000, address: "127.0.0.1" });
  state.now = sessionMs;
  t.is((await fetched(base, { headers: { cookie } })).status, 401);
  const second = cookieIn(await login("name=ada&password=right"));
  state.mark = "second";
  t.is((await fetched(base, { headers: { cookie: second } })).status, 401);
});

test("LD2: the form's fields reach the check of passwords; too many logins are told to wait", async (t) => {
  const { base, login, attempts } = await scene(t, {}, ({ password }) =>
    password === "busy" ? { kind: "busy" } : { kind: "refused" },
  );
  const busy = await login("name=%61da&password=busy");
  t.is(busy.status, 503);
  t.is(busy.headers["retry-after"], "5");
  t.regex(busy.body, /Too many logins at this moment/);
  t.is((await login("")).status, 401);
  t.deepEqual(
    attempts.map(({ name, password, address, certifiedNode }) => [name, password, address, certifiedNode]),
    [
      [{ kind: "user", name: "ada" }, "busy", "127.0.0.1", null],
      [{ kind: "user", name: "" }, "", "127.0.0.1", null],
    ],
  );
  t.is((await fetched(`${base}login`)).headers.location, "/", "a GET leads to the start");
  t.is(attempts.length, 2);
});

test("an agent's or a node's login does not count at the page", async (t) => {
  const { login } = await scene(t, {}, () => ({
    kind: "accepted",
    identity: { kind: "machine", nodeId: "n1" },
    lastLoginMs: null,
  }));
  const answer = await login("name=ada&password=right");
  t.deepEqual([answer.status, cookieIn(answer)], [401, ""]);
});

test("LD1: a browser that logs in again, or a user with too many logins, ends the former login and its pages", async (t) => {
  const { base, login } = await scene(t);
  const first = cookieIn(await login("name=ada&password=right"));
  const page = await connectPage(base, { cookie: first });
  await page.hello;
  t.is((await login("name=ada&password=wrong", first)).status, 401);
  t.is((await fetched(base, { headers: { cookie: first } })).status, 200, "not by a failed login");
  const second = cookieIn(await login("name=ben&password=right", first));
  t.deepEqual(await page.closed, { code: 1012, reason: "this login has ended" });
  t.is((await fetched(base, { headers: { cookie: first } })).status, 401);
  const oldest = cookieIn(await login("name=ada&password=right"));
  const hers = await connectPage(base, { cookie: oldest });
  await hers.hello;
  for (let each = 0; each < userTicketsMax; each += 1) await login("name=ada&password=right");
  t.is((await hers.closed).code, 1012);
  t.is((await fetched(base, { headers: { cookie: oldest } })).status, 401);
  t.is((await fetched(base, { headers: { cookie: second } })).status, 200, "another user's stays");
});

test("a form that is too large gets its answer", async (t) => {
  const { login, base, listener } = await scene(t);
  const answer = await login(`name=${"x".repeat(17_000)}`);
  t.is(answer.status, 413);
  t.is(answer.headers.connection, "close");
  t.regex(answer.body, /too large/);
  const origin = base.slice(0, -1);
  t.regex(await statusAfterWhole(listener.port, "/login", 1_000_000, { origin }), /^HTTP\/1\.1 413 /);
});

test("pages of one user are limited in number, and another user still gets one", async (t) => {
  const { base, login, gauges } = await scene(t, {}, ({ password }) =>
    password === "right" ? { kind: "accepted", identity: ada, lastLoginMs: null } : { kind: "refused" },
  );
  const [hers, more] = [
    cookieIn(await login("name=ada&password=right")),
    cookieIn(await login("name=ada&password=right")),
  ];
  const his = cookieIn(await login("name=ben&password=right"));
  const pages = await Promise.all(
    Array.from({ length: managerUserSocketsMax }, (_, each) => connectPage(base, { cookie: each % 2 ? hers : more })),
  );
  await t.throwsAsync(connectPage(base, { cookie: hers }), {
    message: /^refused: 503 32 pages of this user are open already: close some of them/,
  });
  const other = await connectPage(base, { cookie: his });
  t.is((await other.hello).user, "ben");
  pages[0]?.socket.terminate();
  await until("it is gone", () => gauges.get("muster_ui_pages") === managerUserSocketsMax);
  await (
    await connectPage(base, { cookie: more })
  ).hello;
});

test("TL1: connections without a page displace each other, and never one with a page", async (t) => {
  const { base, login, listener, gauges } = await scene(t, { anonymousMax: 3, anonymousPerAddressMax: 3 });
  const cookie = cookieIn(await login("name=ada&password=right"));
  const page = await connectPage(base, { cookie });
  await page.hello;
  const sockets = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const socket = connect({ host: "127.0.0.1", port: listener.port, rejectUnauthorized: false });
      t.teardown(() => socket.destroy());
      const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
      socket.on("error", () => undefined).resume();
      await new Promise((resolve) => socket.once("secureConnect", resolve));
      return { closed };
    }),
  );
  await Promise.race(sockets.map(({ closed }) => closed));
  t.is(listener.pages, 1);
  t.is(gauges.get("muster_ui_pages"), 1);
  t.is(page.socket.readyState, page.socket.OPEN);
  page.socket.terminate();
  await until("the page is gone", () => gauges.get("muster_ui_pages") === 0);
});

test("a connection that sends no whole request is closed in time, and one whose upgrade is refused at once", async (t) => {
  t.timeout(patient(60_000));
  const { listener } = await scene(t);
  const opened = async (text: string): Promise<{ readonly closed: Promise<void> }> => {
    const socket = connect({ host: "127.0.0.1", port: listener.port, rejectUnauthorized: false });
    socket.on("error", () => undefined).resume();
    const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
    await new Promise((resolve) => socket.once("secureConnect", resolve));
    socket.write(text);
    return { closed };
  };
  const refused = await opened(
    `GET /ws HTTP/1.1\r\nhost: 127.0.0.1:1\r\norigin: https://127.0.0.1:1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n`,
  );
  await refused.closed;
  const slow = await Promise.all([opened("GET / HTTP/1.1\r\n"), opened("")]);
  const begun = performance.now();
  await Promise.all(slow.map(({ closed }) => closed));
  t.true(performance.now() - begun < patient(2 * headersTimeoutMs));
});

test("TL1: a browser without a login waits when the time of strangers is used up; one with a login does not", async (t) => {
  const { base, login, listener } = await scene(t, { anonymousTimeShare: 1e-9, anonymousTimeBurstMs: 1e-3 });
  const cookie = cookieIn(await login("name=ada&password=right"));
  const opened = async (): Promise<{ ask(headers: string): void; readonly answers: () => number }> => {
    const socket = connect({ host: "127.0.0.1", port: listener.port, rejectUnauthorized: false });
    t.teardown(() => socket.destroy());
    let text = "";
    socket.on("error", () => undefined).on("data", (data: Buffer) => (text += data.toString("latin1")));
    await new Promise((resolve) => socket.once("secureConnect", resolve));
    return {
      ask: (headers) => socket.write(`GET /door.css HTTP/1.1\r\nhost: ${new URL(base).host}\r\n${headers}\r\n`),
      answers: () => text.split("HTTP/1.1 200").length - 1,
    };
  };
  const [stranger, user] = [await opened(), await opened()];
  for (let each = 1; each <= 5; each += 1) {
    user.ask(`cookie: ${cookie}\r\n`);
    await until("the user's answer", () => user.answers() === each);
    if (each <= 2) stranger.ask("");
    if (each === 1) await until("the stranger's first answer", () => stranger.answers() === 1);
  }
  t.is(stranger.answers(), 1);
});
