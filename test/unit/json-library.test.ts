// The client of the JSON API that the npm package offers: with a manager's API on a real port, and with servers that misbehave.
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import test, { type ExecutionContext } from "ava";
import { WebSocketServer } from "ws";
import { connectJson, JsonApiError, type JsonClient } from "../../library/json.ts";
import { Annotations, Service, ServiceSpec } from "../../proto/gen/messages.ts";
import { jsonWorld, password } from "../support/json-api.ts";

function service(name: string): Service {
  return Service.create({
    id: name,
    spec: ServiceSpec.create({ annotations: Annotations.create({ name }) }),
  });
}

/** A logged-in client. The manager's clock runs, since changes are gathered for a while before they are sent. */
async function scene(t: ExecutionContext) {
  const world = await jsonWorld(t, { facades: "all" });
  const running = setInterval(() => world.manager.clock.advance(100), 10);
  t.teardown(() => clearInterval(running));
  await world.addUser("ada");
  const api = await connectJson(`wss://127.0.0.1:${world.port}/`, { ca: world.rootPem });
  t.teardown(() => api.close());
  return { ...world, api };
}

test("a client logs in, and reads", async (t) => {
  const { api } = await scene(t);
  const wrong = await t.throwsAsync(api.login("ada", "wrong"), { instanceOf: JsonApiError });
  t.is(wrong?.code, "unauthorized access");
  await api.login("ada", password);
  const status = await api.request<{ readonly applications: object }>({
    type: "Client",
    version: 6,
    request: "FullStatus",
  });
  t.deepEqual(status.applications, {});
  const missing = await t.throwsAsync(api.request({ type: "Nothing", version: 1, request: "Do" }), {
    instanceOf: JsonApiError,
  });
  t.is(missing?.code, "not supported");
});

test("a watch returns all entities and then changes, and its watcher ends with the loop", async (t) => {
  const { api, manager } = await scene(t);
  await api.login("ada", password);
  manager.seed("service", service("web"));
  const { "watcher-id": before } = await api.request<{ readonly "watcher-id": string }>({
    type: "Client",
    version: 6,
    request: "WatchAll",
  });
  const next = (id: number) => api.request({ type: "AllWatcher", version: 3, request: "Next", id: String(id) });
  const seen: string[] = [];
  for await (const { change, entity, kind } of api.watchAll()) {
    if (kind !== "application") continue;
    seen.push(`${change} ${String(entity["name"])}`);
    if (seen.length === 1) manager.seed("service", service("later"));
    if (seen.length === 2) break;
  }
  t.deepEqual(seen, ["change web", "change later"]);
  const ended = await t.throwsAsync(next(Number(before) + 1), { instanceOf: JsonApiError });
  t.is(ended?.code, "not found");
  await t.notThrowsAsync(next(Number(before)));
});

test("an aborted watch ends while it waits for a change", async (t) => {
  const { api } = await scene(t);
  await api.login("ada", password);
  const aborting = new AbortController();
  const watching = (async () => {
    for await (const { kind } of api.watchAll({ signal: aborting.signal }))
      if (kind === "model") setImmediate(() => aborting.abort());
  })();
  await t.notThrowsAsync(watching);
});

test("the end of the connection ends a watch, and later requests say so", async (t) => {
  const { api } = await scene(t);
  await api.login("ada", password);
  const watching = (async () => {
    for await (const { kind } of api.watchAll()) if (kind === "model") setImmediate(() => api.close());
  })();
  await t.throwsAsync(watching, { message: /^the connection to the manager was closed \(code \d+\)$/ });
  await t.throwsAsync(api.request({ type: "Client", version: 6, request: "FullStatus" }), {
    message: "the connection to the manager is closed: connect again",
  });
});

test("a manager of another root is refused", async (t) => {
  const [world, other] = [await jsonWorld(t), await jsonWorld(t)];
  await t.throwsAsync(connectJson(`wss://127.0.0.1:${world.port}/`, { ca: other.rootPem }), { message: /certificate/ });
});

/** Connected to a server that answers each message with that text, or never if null. */
async function answeredWith(t: ExecutionContext, text: string | null): Promise<JsonClient> {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  t.teardown(() => server.close());
  server.on("connection", (socket) =>
    socket.on("message", () => {
      if (text !== null) socket.send(text);
    }),
  );
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const api = await connectJson(`ws://127.0.0.1:${port}/`, { ca: "", timeoutMs: 300 });
  t.teardown(() => api.close());
  return api;
}

test("a request that is not answered ends in time", async (t) => {
  const api = await answeredWith(t, null);
  await t.throwsAsync(api.login("ada", password), {
    message: "the manager did not answer Admin.Login within 300 ms",
  });
});

test("a message that is not JSON ends the connection", async (t) => {
  const api = await answeredWith(t, "<html>");
  const error = await t.throwsAsync(api.login("ada", password), { message: /was closed/ });
  t.regex((error.cause as Error).message, /^the manager sent a message that is not JSON$/);
});
