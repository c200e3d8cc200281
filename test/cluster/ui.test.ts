// The web interface of real processes: `muster ui`, and a manager with --ui-listen whose users log in.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import {
  CreateConfigRequest,
  ControlService,
  ListClustersRequest,
  ListClustersResponse,
  ListNodesResponse,
  ListUsersResponse,
  UsersService,
  WatchRequest,
  WatchActionKind,
  WatchRequest_WatchEntry,
  WatchService,
} from "../../proto/gen/messages.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { MusterProcess, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { until } from "../fixtures/until.ts";
import { connectPage, cookieIn, fetched, type Fetched, type PageClient } from "../support/page-client.ts";
import { patient } from "../support/slowness.ts";

test.beforeEach((t) => t.timeout(patient(120_000)));

const { ListNodes, ListClusters, CreateConfig } = ControlService.methods;
/** New nodes; answered at once with an empty message. */
const watchNodes = WatchRequest.encode(
  WatchRequest.create({
    entries: [WatchRequest_WatchEntry.create({ kind: "node", action: WatchActionKind.WATCH_ACTION_CREATE })],
  }),
);

async function startUi(
  t: ExecutionContext,
  manager: TestManager,
): Promise<{ readonly address: string; readonly process: MusterProcess }> {
  const host = `unix://${join(manager.dataDir, "control.sock")}`;
  const process = new MusterProcess(tempDir(t, "ui"), ["ui", "--host", host]);
  t.teardown(() => process.end());
  await until("the printed address", () => {
    if (!process.isRunning) throw new Error(process.output);
    return process.output.includes("?token=") && process.output.includes("Ctrl-C");
  });
  return { process, address: /http:\S+/.exec(process.output)?.[0] ?? "" };
}

test("muster ui shows the cluster of its manager, says when that goes away, and finds it again", async (t) => {
  const manager = await startManager(t);
  const { address, process } = await startUi(t, manager);
  const base = address.replace(/\?.*/, "");
  const cookie = cookieIn(await fetched(address));
  t.regex((await fetched(base, { headers: { cookie } })).body, /<div id="app">/);
  const client = await connectPage(base, { cookie });
  t.like(await client.hello, { role: "admin", user: "", canLogOut: false });
  client.send({ call: 1, method: ListNodes.path });
  const { message } = await client.until(({ call, hasMessage }) => call === 1 && hasMessage);
  t.is(ListNodesResponse.decode(message).nodes.length, 1);
  client.send({ call: 2, method: "/docker.swarmkit.v1.Dispatcher/Session" });
  t.is((await client.until(({ call }) => call === 2)).status, Status.PERMISSION_DENIED, "nothing reserved for nodes");
  client.send({ call: 3, method: "/no.such.Service/Call" });
  t.is((await client.until(({ call }) => call === 3)).status, Status.UNIMPLEMENTED);
  client.send({
    call: 4,
    method: WatchService.methods.Watch.path,
    message: WatchRequest.encode(WatchRequest.create()),
  });
  await client.until(({ call }) => call === 4);
  client.send({ call: 5, method: WatchService.methods.Watch.path, message: watchNodes });
  await client.until(({ call, hasMessage }) => call === 5 && hasMessage);

  await manager.process.end();
  t.deepEqual(await client.closed, { code: 1012, reason: "the connection to the manager has ended" });
  t.is(client.received.find(({ call, end }) => call === 5 && end)?.status, Status.UNAVAILABLE);
  const alone = await connectPage(base, { cookie });
  t.regex((await alone.closed).reason, /cannot connect to the manager at/);

  const again = await startManager(t, { dataDir: manager.dataDir, port: manager.port });
  t.true(again.process.isRunning);
  const found = await connectPage(base, { cookie });
  t.is((await found.hello).role, "admin");
  process.child.kill("SIGINT");
  t.is((await found.closed).code, 1001);
  await until("muster ui has ended", () => !process.isRunning);
  t.is(process.child.exitCode, 0);
});

interface UserPages {
  readonly base: string;
  login(name: string, password: string): Promise<Fetched>;
  /** A page of a user who has logged in. */
  page(cookie: string): Promise<PageClient>;
}

/** A manager with users `reader`, `worker` and `boss`, whose passwords are their names and `-password`. */
async function withUsers(
  t: ExecutionContext,
): Promise<UserPages & { readonly manager: TestManager; readonly passwordFile: (text: string) => string }> {
  const port = await freePort();
  const manager = await startManager(t, { args: ["--ui-listen", `127.0.0.1:${port}`] });
  const folder = tempDir(t, "passwords");
  const passwordFile = (text: string): string => {
    const file = join(folder, text);
    writeFileSync(file, text, { mode: 0o600 });
    return file;
  };
  for (const [name, role] of [
    ["reader", "read-only"],
    ["worker", "operator"],
    ["boss", "admin"],
  ] as const)
    await manager.muster("user", "add", "--role", role, "--password-file", passwordFile(`${name}-password`), name);
  const base = `https://127.0.0.1:${port}/`;
  const origin = base.slice(0, -1);
  return {
    manager,
    passwordFile,
    base,
    login: (name, password) =>
      fetched(`${base}login`, {
        method: "POST",
        headers: { origin, "content-type": "application/x-www-form-urlencoded" },
        body: new URLSearchParams({ name, password }).toString(),
      }),
    async page(cookie) {
      const client = await connectPage(base, { cookie });
      t.teardown(() => client.socket.terminate());
      await client.hello;
      return client;
    },
  };
}

test("a manager serves the page to users who log in, with the rights of their roles", async (t) => {
  const { base, login, page } = await withUsers(t);
  const stranger = await fetched(base);
  t.is(stranger.status, 401);
  t.regex(stranger.body, /<form method="post" action="\/login">/);
  t.is((await fetched(`${base}main.js`)).status, 401);
  await t.throwsAsync(connectPage(base, {}), { message: /^refused: 401/ });
  await t.throwsAsync(connectPage(base, { origin: "https://evil.example" }), { message: /^refused: 403/ });
  const foreign = await fetched(`${base}login`, {
    method: "POST",
    headers: { origin: "https://evil.example" },
    body: "",
  });
  t.is(foreign.status, 403);
  const wrong = await login("reader", "guess");
  t.is(wrong.status, 401);
  t.regex(wrong.body, /The user name or the password is wrong/);
  t.is(wrong.headers["set-cookie"], undefined);
  t.is((await login("nobody", "guess")).body, wrong.body);
  const large = await login("reader", "x".repeat(20_000));
  t.is(large.status, 413);

  const entered = await login("reader", "reader-password");
  t.is(entered.status, 303);
  t.is(entered.headers.location, "/");
  t.regex(
    entered.headers["set-cookie"]?.[0] ?? "",
    /^__Host-muster-ui-\d+=[0-9a-f]{64}; Path=\/; Secure; HttpOnly; SameSite=Strict$/,
  );
  const cookie = cookieIn(entered);
  t.regex((await fetched(base, { headers: { cookie } })).body, /<div id="app">/);
  const reader = await page(cookie);
  t.like(await reader.hello, { role: "read-only", user: "reader", canLogOut: true });
  reader.send({ call: 1, method: ListNodes.path });
  const { message } = await reader.until(({ call, hasMessage }) => call === 1 && hasMessage);
  t.is(ListNodesResponse.decode(message).nodes.length, 1);
  const create = CreateConfigRequest.encode(CreateConfigRequest.create());
  reader.send({ call: 2, method: CreateConfig.path, message: create });
  t.like(await reader.until(({ call }) => call === 2), {
    end: true,
    status: Status.PERMISSION_DENIED,
    error: "permission denied: this needs the role operator, and user reader has the role read-only",
  });
  for (const [at, path] of [
    "/docker.swarmkit.v1.Dispatcher/Session",
    "/docker.swarmkit.v1.RaftMembership/Join",
    "/muster.v1.DataKeys/GetDataKeys",
  ].entries()) {
    reader.send({ call: 10 + at, method: path });
    t.is((await reader.until(({ call }) => call === 10 + at)).status, Status.PERMISSION_DENIED, path);
  }
  reader.send({
    call: 3,
    method: ListClusters.path,
    message: ListClustersRequest.encode(ListClustersRequest.create()),
  });
  const clusters = await reader.until(({ call, hasMessage }) => call === 3 && hasMessage);
  const [cluster] = ListClustersResponse.decode(clusters.message).clusters;
  t.is(cluster?.rootCa?.joinTokens, null, "US2: the same filters as over gRPC");

  const boss = await page(cookieIn(await login("boss", "boss-password")));
  boss.send({ call: 1, method: UsersService.methods.ListUsers.path });
  const users = await boss.until(({ call, hasMessage }) => call === 1 && hasMessage);
  t.is(ListUsersResponse.decode(users.message).users.length, 3);
});

test("a login ends at once when the user logs out, is disabled, or has another password or role", async (t) => {
  const { base, login, page, manager, passwordFile } = await withUsers(t);
  const cookie = cookieIn(await login("worker", "worker-password"));
  const promoted = await page(cookie);
  promoted.send({ call: 1, method: WatchService.methods.Watch.path, message: watchNodes });
  await promoted.until(({ call, hasMessage }) => call === 1 && hasMessage);
  await manager.muster("user", "grant", "worker", "read-only");
  t.is((await promoted.closed).code, 1012);
  t.truthy(promoted.received.find(({ call, end, status }) => call === 1 && end && status === Status.UNAVAILABLE));
  const demoted = await page(cookie);
  t.is((await demoted.hello).role, "read-only", "the page connects again, with the new role");

  await manager.muster("user", "passwd", "--password-file", passwordFile("other-password"), "worker");
  t.is((await demoted.closed).code, 1012);
  t.is((await fetched(base, { headers: { cookie } })).status, 401);
  await t.throwsAsync(connectPage(base, { cookie }), { message: /^refused: 401/ });

  const other = cookieIn(await login("worker", "other-password"));
  const disabled = await page(other);
  await manager.muster("user", "disable", "worker");
  t.is((await disabled.closed).code, 1012);
  t.is((await fetched(base, { headers: { cookie: other } })).status, 401);
  t.is((await login("worker", "other-password")).status, 401);

  const third = cookieIn(await login("boss", "boss-password"));
  const left = await page(third);
  const origin = base.slice(0, -1);
  const logout = await fetched(`${base}logout`, { method: "POST", headers: { cookie: third, origin } });
  t.is(logout.status, 303);
  t.regex(logout.headers["set-cookie"]?.[0] ?? "", /=; .*Max-Age=0/);
  t.is((await left.closed).reason, "this login has ended");
  t.is((await fetched(base, { headers: { cookie: third } })).status, 401);
});
