// A manager with a slow link to its NATS: what the link allows works, and the rest is named.
import { connect, createServer, type Socket } from "node:net";
import { once } from "node:events";
import test, { type ExecutionContext } from "ava";
import { Trouble_Kind } from "../../proto/gen/messages.ts";
import { createService, sleepers, status } from "../fixtures/control-client.ts";
import { startManager } from "../fixtures/muster.ts";
import { natsServer } from "../fixtures/nats-server.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

/** Forwards bytes to `port` and back, each after `delay.ms`, in order. */
async function delayingProxy(t: ExecutionContext, port: number, delay: { ms: number }): Promise<number> {
  const sockets = new Set<Socket>();
  const timers = new Set<NodeJS.Timeout>();
  const pass = (from: Socket, to: Socket): void => {
    const later = (work: () => void): void => {
      const timer = setTimeout(() => {
        timers.delete(timer);
        work();
      }, delay.ms);
      timers.add(timer);
    };
    sockets.add(from);
    from.setNoDelay(true);
    from.on("data", (chunk) => later(() => to.destroyed || to.write(chunk)));
    from.on("close", () => later(() => to.destroy()));
    from.on("error", () => from.destroy());
  };
  const server = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    pass(near, far);
    pass(far, near);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(async () => {
    for (const timer of timers) clearTimeout(timer);
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, "close");
  });
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}

test.serial(
  "with a 600 ms round trip to NATS, writes succeed with a warning, which clears when the link is fast again",
  async (t) => {
    t.timeout(patient(300_000));
    const { server } = await natsServer(t);
    const { user, pass, url } = server;
    const delay = { ms: 0 };
    const near = await delayingProxy(t, Number(new URL(url).port), delay);
    const manager = await startManager(t, { nats: `nats://${user}:${pass}@127.0.0.1:${near}` });
    await manager.ready();
    delay.ms = 300;
    const slow = await until("the warning", async () => {
      const { troubles } = await status(manager);
      return troubles.find(({ kind }) => kind === Trouble_Kind.SLOW_LINK) ?? null;
    });
    t.regex(slow.sentence, /for a write of the lease, which lasts 3000 ms.*--lease-ttl \d+s or more/);
    for (const name of ["one", "two", "three"])
      await until("an accepted write", async () => {
        await createService(manager, sleepers(name, 0), 20_000);
        return true;
      });
    const { epoch } = await status(manager);
    await createService(manager, sleepers("four", 0), 20_000);
    t.log(`epoch ${epoch}, then ${(await status(manager)).epoch}`);
    delay.ms = 0;
    await until("no trouble", async () => {
      const { healthy, troubles } = await status(manager);
      return healthy && !troubles.some(({ kind }) => kind === Trouble_Kind.SLOW_LINK);
    });
  },
);
