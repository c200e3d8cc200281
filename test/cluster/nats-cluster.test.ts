import { createServer, type AddressInfo, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import type { NatsLink } from "../../runtime/nats/connection.ts";
import { callJetStream, fieldsField, textField } from "../../runtime/nats/jetstream.ts";
import { Link } from "../../runtime/nats/link.ts";
import type { Random } from "../../runtime/ports/index.ts";
import { logStream } from "../../runtime/nats/streams.ts";
import { SystemRandom } from "../../runtime/system/random.ts";
import { connectWhenElected, natsCluster } from "../fixtures/nats-cluster.ts";
import { natsBinaries, testTelemetry, until } from "../fixtures/nats-server.ts";
import { patient } from "../support/slowness.ts";

const record = (sequence: number): Uint8Array => new TextEncoder().encode(`record ${sequence}`);

for (const binary of natsBinaries) {
  test(`with three replicas, the log survives the kill of its leader: no acknowledged append is lost, and readers continue (${binary})`, async (t) => {
    const cluster = await natsCluster(t, binary);
    const telemetry = await testTelemetry();
    const options = { servers: cluster.urls, name: "test", telemetry, replicas: 3 as const };
    const connect = async (): Promise<NatsLink> => {
      const link = await connectWhenElected(options);
      t.teardown(() => link.close());
      return link;
    };
    const startedAt = performance.now();
    const links = [await connect(), await connect(), await connect()];
    const [writer] = links as [NatsLink];
    t.false(writer.abilities.some((sentence) => sentence.includes("one replica")));
    const setUpMs = performance.now() - startedAt;
    const observer = await Link.open({ ...options, random: new SystemRandom(), firstConnectMs: 5_000 });
    t.teardown(() => observer.close());

    const read = links.map((link) => {
      const texts: string[] = [];
      const subscription = link.log.read(1, {
        onRecord: (sequence, data) => {
          t.is(sequence, texts.length + 1);
          texts.push(new TextDecoder().decode(data));
        },
        onCaughtUp: () => undefined,
        onGap: () => t.fail("gap"),
      });
      t.teardown(() => subscription.unsubscribe());
      return texts;
    });
    let last = 0;
    let outageMs = 0;
    const appendUntil = async (count: number): Promise<void> => {
      const deadline = performance.now() + 25_000;
      let failedAt: number | null = null;
      while (last < count) {
        const outcome = await writer.log.append(record(last + 1), last);
        if (outcome.kind === "appended") {
          if (failedAt !== null) outageMs = Math.max(outageMs, performance.now() - failedAt);
          failedAt = null;
          last = outcome.sequence;
          continue;
        }
        if (performance.now() > deadline) throw new Error(`stuck at ${last}: ${JSON.stringify(outcome)}`);
        failedAt ??= performance.now();
        await delay(20);
        const bounds = await writer.log.bounds(500);
        // A new leader may briefly not have applied all its records; the append is retried until it succeeds.
        if (bounds !== null && bounds.last > last) last = bounds.last;
      }
    };
    await appendUntil(200);
    const found = await callJetStream(observer, `STREAM.INFO.${logStream}`, null, 5_000);
    const leader = found.kind === "ok" ? textField(fieldsField(found.body, "cluster"), "leader") : "";
    t.regex(leader, /^n[012]$/);
    await cluster.kill(leader);
    await appendUntil(400);
    const readMs = await until(
      "all readers to have all records",
      () => read.every((texts) => texts.length >= 400),
      15_000,
    );
    for (const texts of read)
      t.deepEqual(
        texts,
        Array.from({ length: texts.length }, (_, at) => `record ${at + 1}`),
      );
    cluster.start(leader);
    await appendUntil(450);
    await until("all readers to have the rest", () => read.every((texts) => texts.length >= 450), 15_000);
    t.log(
      `set up in ${setUpMs.toFixed(0)} ms; appends again after ${outageMs.toFixed(0)} ms; the slowest reader complete ${readMs.toFixed(0)} ms later`,
    );
  });
}

test("a link to several servers leaves one that answers pings but does not serve the log", async (t) => {
  t.timeout(patient(300_000));
  const { urls } = await natsCluster(t);
  const deaf = await deafServer(t);
  const random: Random = {
    next: () => 0.5,
    below: () => 0,
    bytes: (count) => new Uint8Array(count),
    fork: () => random,
  };
  const telemetry = await testTelemetry();
  const servers = [deaf, ...urls];
  const link = await Link.open({ servers, name: "leaver", telemetry, random, firstConnectMs: 60_000 });
  t.teardown(() => link.close());
  t.is(link.serverVersion, "2.99.0", "it starts at the unresponsive one");
  await until("an answer from JetStream", async () => (await callJetStream(link, "INFO", null, 500)).kind === "ok");
  t.not(link.serverVersion, "2.99.0");
  t.is(link.serving.silence(performance.now()), null);
});

/** A server that greets as a member of a JetStream cluster and answers pings, and nothing else. */
async function deafServer(t: ExecutionContext): Promise<string> {
  const info = { server_id: "x", server_name: "deaf", version: "2.99.0", jetstream: true, cluster: "c", headers: true };
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.write(`INFO ${JSON.stringify({ ...info, proto: 1, max_payload: 8_388_608 })}\r\n`);
    socket.on("data", (chunk: Buffer) => {
      for (const _ of chunk.toString("latin1").matchAll(/PING\r\n/g)) socket.write("PONG\r\n");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return `nats://127.0.0.1:${port}`;
}
