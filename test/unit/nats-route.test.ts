// How a node reaches its managers over NATS, from one start to the next.
import test from "ava";
import { UserError } from "../../lib/user-error.ts";
import { natsRoute } from "../../processes/nats-route.ts";
import type { Seal } from "../../processes/sealed-dialer.ts";

function world() {
  const records = new Map<string, Uint8Array>();
  const disk = {
    load: (record: string) => Promise.resolve(records.get(record) ?? null),
    save: (record: string, bytes: Uint8Array) => {
      records.set(record, bytes);
      return Promise.resolve();
    },
  };
  return (join: readonly string[], seal: Seal | null = null) => natsRoute(disk, join, seal);
}

const lab: Seal = { site: "lab", caFile: "/etc/ca.pem", credentialsFile: null };
const dock: Seal = { site: "dock", caFile: null, credentialsFile: "/etc/seed" };
const urls = ["nats://a:4222", "tls://b:4222"];

test("a later start uses the URLs of the last --join, and the --seal that came with them or later", async (t) => {
  const start = world();
  t.is(await start([]), null);
  t.deepEqual(await start(urls, lab), { urls, seal: lab });
  t.deepEqual(await start([]), { urls, seal: lab });
  t.deepEqual(await start([], dock), { urls, seal: dock });
  t.deepEqual(await start([]), { urls, seal: dock });
  t.deepEqual(await start(["nats://manager:4222"]), { urls: ["nats://manager:4222"], seal: null });
  t.deepEqual(await start([]), { urls: ["nats://manager:4222"], seal: null });
  t.deepEqual(await start(urls, lab), { urls, seal: lab });
  t.is(await start(["192.0.2.1:2377"]), null);
  t.is(await start([]), null);
});

test("--seal is refused where there is no NATS to seal links through, and nothing of it is kept", async (t) => {
  const start = world();
  await start(["192.0.2.1:2377"]);
  await t.throwsAsync(start([], lab), { instanceOf: UserError, message: /^--seal requires --join with the URLs/ });
  t.is(await start([]), null);
  t.deepEqual(await start(urls), { urls, seal: null });
});
