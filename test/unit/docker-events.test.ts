// `/events` of Docker's Engine API: labels are those of edges/docker/objects/events.ts.
import { once } from "node:events";
import { createServer, get } from "node:http";
import type { AddressInfo } from "node:net";
import test from "ava";
import { followEvents } from "../../edges/docker/objects/events.ts";
import type { DockerRequest } from "../../edges/docker/request.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { until } from "../fixtures/until.ts";

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
