// `/events` of Docker's Engine API: labels are those of edges/docker/objects/events.ts.
import { once } from "node:events";
import { createServer, get } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import test from "ava";
import { followEvents } from "../../edges/docker/objects/events.ts";
import type { DockerRequest } from "../../edges/docker/request.ts";
import {
  Annotations,
  ContainerSpec,
  Meta,
  Object as StoreObject,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  Timestamp,
  WatchActionKind,
  WatchMessage,
  WatchMessage_Event,
} from "../../proto/gen/messages.ts";
import type { Sink } from "../../runtime/ports/rpc.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { until } from "../fixtures/until.ts";
import { testManager } from "../support/manager.ts";

/** Events of a manager that ends the stream at once, whatever the reason is, with so many bytes unread. */
async function ended(t: { teardown(act: () => void): void }, unread: number) {
  const clock = new SimClock();
  const outcomes: string[] = [];
  const server = createServer((message, response) => {
    response.once("close", () => outcomes.push(response.writableFinished ? "sent" : "dropped"));
    const calls = {
      stream: (
        _method: unknown,
        _request: unknown,
        sink: { end(error: Error | null, queued: "send" | "drop"): void },
      ) => {
        response.write("x".repeat(unread));
        sink.end(null, "send");
      },
    };
    const request = {
      backend: { clock, store: { version: 1 } },
      version: "1.41",
      query: new URLSearchParams(),
      message,
      response,
      calls,
      signal: new AbortController().signal,
    };
    void followEvents(request as unknown as DockerRequest);
  }).listen(0, "127.0.0.1");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  await once(server, "listening");
  const sent = get({ host: "127.0.0.1", port: (server.address() as AddressInfo).port, agent: false });
  sent.on("error", () => undefined);
  const [response] = (await once(sent, "response")) as [NodeJS.ReadableStream];
  return { clock, outcomes, response };
}

test("EV3: a client that does not read is disconnected when its events end for whatever reason", async (t) => {
  const { clock, outcomes } = await ended(t, 32 * 1024 * 1024);
  await clock.run({ untilMs: clock.now() + 9_000 });
  t.deepEqual(outcomes, []);
  await clock.run({ untilMs: clock.now() + 2_000 });
  await until("an outcome", () => outcomes.length > 0);
  t.deepEqual(outcomes, ["dropped"]);
});

test("EV3: a client that reads gets what waits for it when its events end", async (t) => {
  const { clock, outcomes, response } = await ended(t, 4 * 1024 * 1024);
  let bytes = 0;
  for await (const chunk of response) bytes += (chunk as Buffer).length;
  t.is(bytes, 4 * 1024 * 1024);
  await clock.run({ untilMs: clock.now() + 60_000 });
  t.deepEqual(outcomes, ["sent"]);
});

/** Events that a client with these filters gets: two services are created, and a task of the first one starts. */
async function filtered(
  t: { teardown(act: () => void): void },
  filters: Readonly<Record<string, readonly string[]>>,
): Promise<string> {
  const clock = new SimClock();
  const manager = testManager();
  const meta = Meta.create({ createdAt: Timestamp.create({ seconds: 1 }) });
  const services = ["web", "xweb"].map((name) =>
    Service.create({ id: `${name}-id`, meta, spec: ServiceSpec.create({ annotations: Annotations.create({ name }) }) }),
  );
  manager.seed("service", ...services);
  const started = Task.create({
    id: "t",
    meta,
    serviceId: "web-id",
    slot: 1,
    spec: TaskSpec.create({ container: ContainerSpec.create({ image: "docker.io/library/nginx:1" }) }),
    status: TaskStatus.create({ state: TaskState.RUNNING }),
  });
  const happened = [
    ...services.map((service) => StoreObject.create({ service })),
    StoreObject.create({ task: started }),
  ];
  const events = happened.map((object) =>
    WatchMessage_Event.create({ action: WatchActionKind.WATCH_ACTION_CREATE, object }),
  );
  const server = createServer((message, response) => {
    const calls = {
      stream: (_method: unknown, _request: unknown, sink: Sink<WatchMessage>) => {
        sink.write(WatchMessage.create({ events }));
        sink.end(undefined, "send");
      },
    };
    const request = {
      backend: { clock, store: manager.store },
      version: "1.41",
      query: new URLSearchParams({ filters: JSON.stringify(filters) }),
      message,
      response,
      calls,
      signal: new AbortController().signal,
    };
    void followEvents(request as unknown as DockerRequest);
  }).listen(0, "127.0.0.1");
  t.teardown(() => server.close());
  await once(server, "listening");
  const sent = get({ host: "127.0.0.1", port: (server.address() as AddressInfo).port, agent: false });
  const [response] = (await once(sent, "response")) as [NodeJS.ReadableStream];
  const lines = (await text(response)).split("\n").filter((line) => line !== "");
  const seen = lines.map((line) => JSON.parse(line) as { Type: string; Actor: { Attributes: { name: string } } });
  return seen.map(({ Actor, Type }) => `${Type} ${Actor.Attributes.name}`).join(", ");
}

test("events are filtered as by an engine: names and ids by their beginning, images also without tag", async (t) => {
  const all = "service web, service xweb, container web.1.t";
  t.is(await filtered(t, {}), all);
  t.is(await filtered(t, { service: ["web"] }), "service web, container web.1.t");
  t.is(await filtered(t, { service: ["xweb-i"] }), "service xweb");
  t.is(await filtered(t, { service: ["eb"] }), "");
  t.is(await filtered(t, { container: ["web.1"] }), "container web.1.t");
  for (const image of ["nginx", "docker.io/library/nginx:1"])
    t.is(await filtered(t, { image: [image] }), "container web.1.t", image);
  t.is(await filtered(t, { image: ["nginx:2"] }), "");
  t.is(await filtered(t, { type: ["container"], event: ["create", "start"] }), "container web.1.t");
});
