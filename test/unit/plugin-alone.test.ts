// A driver process that has lost its host: it stays while somebody could need it, and exits by itself otherwise (V4).
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { magicCookie, parseHandshake, Variable } from "../../edges/plugin/handshake.ts";
import { DriverServer } from "../../edges/plugin/server/driver-service.ts";
import type { Driver, TaskExit } from "../../edges/plugin/server/index.ts";
import {
  DestroyTaskRequest,
  RecoverTaskRequest,
  StartTaskRequest,
  TaskConfig,
  TaskHandle,
} from "../../proto/gen/nomad.ts";
import type { CallContext } from "../../runtime/ports/rpc.ts";
import { mockDriver } from "../fixtures/plugin-launch.ts";
import { until } from "../fixtures/until.ts";

const silent = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
const call = {} as CallContext;

/** The mock driver, started as by a host that then does nothing more; and its address. */
async function abandoned(t: ExecutionContext, aloneMs: number) {
  const folder = mkdtempSync(join(tmpdir(), "ma"));
  const child = spawn(mockDriver, [`--alone-ms=${aloneMs}`], {
    stdio: ["ignore", "pipe", "ignore"],
    env: { ...process.env, [magicCookie.name]: magicCookie.value, [Variable.socketDir]: folder },
  });
  t.teardown(() => {
    child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });
  const line = await new Promise<string>((resolve) => child.stdout.once("data", (bytes) => resolve(String(bytes))));
  const handshake = parseHandshake(line.trim());
  if (handshake.kind === "refused") throw new Error(handshake.reason);
  return { child, folder, address: handshake.address };
}

test("a driver that no host has connected to exits by itself, and leaves no socket", async (t) => {
  const { child, folder } = await abandoned(t, 200);
  t.is(await until("its end", () => child.exitCode), 0);
  t.deepEqual(readdirSync(folder), []);
});

test("a driver with a connection stays, and exits when it has been alone for its time", async (t) => {
  const { address, child } = await abandoned(t, 2_500);
  const socket = connect(address);
  t.teardown(() => socket.destroy());
  await new Promise<void>((resolve) => socket.once("connect", resolve));
  // Not a wait: the test is that nothing happens.
  await new Promise((resolve) => setTimeout(resolve, 4_000));
  t.is(child.exitCode, null);
  socket.destroy();
  t.is(await until("its end", () => child.exitCode), 0);
});

test("a driver without tasks may exit; one that cannot recover ended tasks stays until they are destroyed", async (t) => {
  for (const recovers of [true, false]) {
    let end = (_exit: TaskExit): void => {};
    const run = () => ({
      state: null,
      exited: new Promise<TaskExit>((resolve) => (end = resolve)),
      stop: async () => {},
    });
    const driver: Driver = { name: "x", version: "1", task: {}, start: run, ...(recovers ? { recover: run } : {}) };
    const server = new DriverServer(driver, silent);
    const { DestroyTask, RecoverTask, StartTask } = server.handlers();
    const config = TaskConfig.create({ id: "one" });
    t.true(server.isSpare);
    const { handle } = await StartTask(StartTaskRequest.create({ task: config }), call);
    t.false(server.isSpare);
    end({ exitCode: 0, signal: 0, oomKilled: false });
    await until("its end", () => server.isSpare === recovers);
    await DestroyTask(DestroyTaskRequest.create({ taskId: "one" }), call);
    t.true(server.isSpare);
    if (!recovers) continue;
    await RecoverTask(RecoverTaskRequest.create({ handle: handle ?? TaskHandle.create() }), call);
    t.false(server.isSpare);
  }
});
