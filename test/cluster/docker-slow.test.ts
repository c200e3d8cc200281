// Clients of Docker's Engine API that are slow: bodies that do not arrive, and events and logs that nobody reads.
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { Agent, request, type IncomingMessage } from "node:http";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import anyTest from "ava";
import { ask } from "../fixtures/engine-api.ts";
import { startAgent, startManager } from "../fixtures/muster.ts";
import { mockDriver } from "../fixtures/plugin-launch.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const test = anyTest.serial;

interface RawClient {
  readonly socket: Socket;
  received(): string;
  readonly closed: Promise<void>;
}

function rawClient(path: string, text: string): RawClient {
  const socket = connect({ path });
  let received = "";
  socket.on("data", (data: Buffer) => (received += data.toString("latin1"))).on("error", () => undefined);
  socket.write(text);
  return { socket, received: () => received, closed: new Promise((resolve) => socket.once("close", () => resolve())) };
}

function residentBytes(pid: number): number {
  const [, kilobytes = "0"] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) * 1_024;
}

test("a body that does not arrive within a minute is refused, also one before an upgrade", async (t) => {
  t.timeout(patient(180_000));
  const manager = await startManager(t);
  await manager.ready();
  const path = join(manager.dataDir, "docker.sock");
  const head = (upgrade: string): string =>
    `POST /v1.41/services/create HTTP/1.1\r\nHost: d\r\n${upgrade}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"Name":`;
  const plain = rawClient(path, head(""));
  const upgrading = rawClient(path, head("Connection: Upgrade\r\nUpgrade: tcp\r\n"));
  // A byte now and then does not count as an arrival.
  const drip = setInterval(() => {
    for (const { socket } of [plain, upgrading]) if (socket.writable) socket.write(" ");
  }, 5_000);
  await Promise.all([plain.closed, upgrading.closed]);
  clearInterval(drip);
  t.regex(plain.received(), /^HTTP\/1\.1 408 /);
  t.regex(upgrading.received(), /^HTTP\/1\.1 408 /);
  t.regex(upgrading.received(), /the request body did not arrive within 60 s/);
  t.is((await ask(path, { method: "GET", path: "/_ping" })).text, "OK");
});

test("a client that stops reading events is disconnected, and nothing is kept for it", async (t) => {
  t.timeout(patient(240_000));
  const manager = await startManager(t);
  await manager.ready();
  const path = join(manager.dataDir, "docker.sock");
  const since = Math.floor(Date.now() / 1_000) - 60;
  // More than the sockets and the manager hold for a client that replays.
  const configs = 8_000;
  const agent = new Agent({ keepAlive: true, maxSockets: 32 });
  t.teardown(() => agent.destroy());
  const create = async (name: string): Promise<void> => {
    const sent = request({ agent, socketPath: path, method: "POST", path: "/v1.41/configs/create" });
    sent.setHeader("content-type", "application/json");
    sent.end(JSON.stringify({ Name: name, Data: "YQ==" }));
    const [response] = (await once(sent, "response")) as [IncomingMessage];
    response.resume();
    await once(response, "end");
    if (response.statusCode !== 201) throw new Error(`creating a config: ${response.statusCode}`);
  };
  await Promise.all(Array.from({ length: configs }, (_, at) => create(`${"long-".repeat(10)}${at}`)));

  const get = (query: string): string => `GET /v1.41/events${query} HTTP/1.1\r\nHost: d\r\n\r\n`;
  const reader = rawClient(path, get(`?since=${since}`));
  await until("all events", () => reader.received().includes(`-${configs - 1}"`) && reader.received().length > 1e6);
  const live = rawClient(path, get(""));
  live.socket.pause();
  // A starved manager may answer that its log is late: such a client gets no events, and asks again.
  const stalled: RawClient[] = [];
  while (stalled.length < 20) {
    const client = rawClient(path, get(`?since=${since}`));
    client.socket.once("data", () => client.socket.pause());
    await until("its answer", () => client.received() !== "", patient(60_000));
    if (client.received().startsWith("HTTP/1.1 200 ")) stalled.push(client);
    else client.socket.destroy();
  }
  // A client that does not read notices the end of its connection when it writes.
  const drip = setInterval(() => {
    for (const { socket } of stalled) if (socket.writable) socket.write("\r\n");
  }, 500);
  await Promise.all(stalled.map(({ closed }) => closed));
  clearInterval(drip);
  t.true(
    stalled.every(({ received }) => received().length < reader.received().length),
    "the events that waited for them are dropped",
  );
  // Those that read, or have little to read, stay.
  await create("last");
  await until("the event at the reader", () => reader.received().includes('"name":"last"'));
  live.socket.resume();
  await until("the event at the client that paused", () => live.received().includes('"name":"last"'));
  for (const { socket } of [reader, live]) socket.destroy();
});

test("logs that a client does not read wait at the node, and cost the manager no memory", async (t) => {
  t.timeout(patient(180_000));
  const manager = await startManager(t);
  await manager.ready();
  await startAgent(t, manager, {
    hostname: "one",
    args: ["--driver", `exec=${join(mockDriver, "../muster-driver-exec")}`],
  });
  const script = `while :; do echo ${"0123456789".repeat(100)}; done`;
  const config = JSON.stringify({ command: "/bin/sh", args: ["-c", script] });
  await manager.muster("service", "create", "-d", "--name", "talks", "--driver", "exec", "--driver-config", config);
  const path = join(manager.dataDir, "docker.sock");
  const reader = rawClient(path, "GET /v1.41/services/talks/logs?stdout=1&follow=1 HTTP/1.1\r\nHost: d\r\n\r\n");
  await until("the first lines", () => reader.received().includes("0123456789"));
  reader.socket.pause();
  const pid = manager.process.child.pid ?? 0;
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  const before = residentBytes(pid);
  await new Promise((resolve) => setTimeout(resolve, 10_000));
  t.true(residentBytes(pid) - before < 30 * 1_024 * 1_024, "lines that nobody reads are not kept");
  const length = reader.received().length;
  t.is((await ask(path, { method: "GET", path: "/_ping" })).text, "OK");
  reader.socket.resume();
  await until("further lines", () => reader.received().length > length + 10 * 1_024 * 1_024, patient(60_000));
  reader.socket.destroy();
  await manager.muster("service", "rm", "talks");
});
