// A process's metrics, exported only where somebody can read them.
import type { AddressInfo } from "node:net";
import test from "ava";
import { serveMetrics } from "../../processes/metrics-server.ts";
import type { CollectionGroup } from "../../runtime/telemetry/collections.ts";
import { createMetrics } from "../../runtime/telemetry/metrics.ts";

test("the process monitors itself only where its metrics are served", async (t) => {
  const metrics = createMetrics();
  metrics.counter("muster_calls_total", "Calls.").add(2, { method: "x" });
  const { text } = await metrics.expose();
  t.regex(text, /^muster_calls_total\{method="x"\} 2$/m);
  t.notRegex(text, /muster_process_cpu/);

  let isHealthy = true;
  const server = await serveMetrics({ host: "127.0.0.1", port: 0 }, metrics, () =>
    isHealthy ? null : "no manager leads",
  );
  t.teardown(() => server.close());
  const at = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const scraped = await (await fetch(`${at}/metrics`)).text();
  t.regex(scraped, /^muster_calls_total\{method="x"\} 2$/m);
  t.regex(scraped, /^muster_process_cpu_seconds_total /m);
  t.regex(scraped, /^muster_nodejs_eventloop_lag_seconds /m);
  t.is((await fetch(`${at}/healthz`)).status, 200);
  isHealthy = false;
  const refused = await fetch(`${at}/healthz`);
  t.is(refused.status, 503);
  t.is(await refused.text(), "no manager leads\n");
});

test("callers on this machine learn what the process's collections hold", async (t) => {
  class Held {}
  const growing = new Map<string, Held>();
  const objects = new Set([{ first: 1, second: 2 }]);
  const server = await serveMetrics({ host: "127.0.0.1", port: 0 }, createMetrics(), () => null);
  t.teardown(() => server.close());
  const at = `http://127.0.0.1:${(server.address() as AddressInfo).port}/debug/collections`;
  const groups = async () => (await (await fetch(at)).json()) as readonly CollectionGroup[];
  const held = async () => (await groups()).filter(({ value }) => value === "Held");
  t.deepEqual(await held(), []);
  for (let number = 0; number < 3_000; number += 1) growing.set(`key ${number}`, new Held());
  t.deepEqual(await held(), [
    { kind: "Map", key: "string", value: "Held", collections: 1, entries: 3_000, largest: 3_000 },
  ]);
  t.true((await groups()).some(({ kind, value }) => kind === "Set" && value === "{ first, second }"));
  t.is(objects.size, 1);
});
