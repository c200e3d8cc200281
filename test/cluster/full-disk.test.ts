// A manager whose nats-server has its own small disk, in a mount namespace: behaviour while the disk is full to the last byte and
// changes are written, or the manager starts, and after space is freed.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { NodeStatus_State } from "../../proto/gen/messages.ts";
import {
  createService,
  nodeCalled,
  runningTasks,
  serviceNames,
  sleepers,
  status,
  tasks,
  writeSteadily,
} from "../fixtures/control-client.ts";
import { runMuster, startAgent, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { natsBinaries } from "../fixtures/nats-server.ts";
import { endProcessesOf, taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const diskMegabytes = 160;
const patienceMs = 120_000;

interface SmallDisk {
  readonly manager: TestManager;
  /** No further byte can be written. */
  fill(): void;
  /** Leaves this many megabytes free. */
  fillBut(megabytes: number): void;
  free(): void;
}

async function onSmallDisk(t: ExecutionContext, binary: string): Promise<SmallDisk> {
  const dataDir = tempDir(t, "manager");
  // The mount outlives the manager's process.
  const mount = `mkdir -p "$1/nats" && mount -t tmpfs -o size=${diskMegabytes}m none "$1/nats" && echo && exec sleep infinity`;
  const holder = spawn("unshare", ["-m", "sh", "-c", mount, "sh", dataDir], { stdio: ["ignore", "pipe", "inherit"] });
  t.teardown(() => holder.kill("SIGKILL"));
  await once(holder.stdout, "data");
  const manager = await startManager(t, {
    dataDir,
    env: { MUSTER_NATS_SERVER: binary },
    wrap: () => ["nsenter", `--mount=/proc/${holder.pid}/ns/mnt`, "--"],
  });
  const disk = `/proc/${holder.pid}/root${dataDir}/nats`;
  const ballast = join(disk, "ballast");
  const fillBut = (megabytes: number): void => {
    const file = openSync(ballast, "a");
    const block = Buffer.alloc(1024 * 1024, 1);
    try {
      for (let left = diskMegabytes; left > megabytes; left -= 1) if (writeSync(file, block) < block.length) return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
    } finally {
      closeSync(file);
    }
  };
  return { manager, fill: () => fillBut(0), fillBut, free: () => rmSync(ballast) };
}

/** Resolves when a write succeeds; one that timed out may have happened anyway, so each attempt has its own name. */
async function accepted(manager: TestManager): Promise<void> {
  let n = 0;
  await until(
    "an accepted write",
    async () => {
      await createService(manager, sleepers(`after${(n += 1)}`, 0), 5_000);
      return true;
    },
    patienceMs,
  );
}

/** Needs root: it mounts. */
const rootTest = process.getuid?.() === 0 ? test.serial : test.serial.skip;

for (const binary of natsBinaries) {
  rootTest(
    `while the log's disk is full, writes are rejected with that reason and all else works; writes resume once space is free (${binary})`,
    async (t) => {
      t.timeout(patient(600_000));
      const { manager, fill, free } = await onSmallDisk(t, binary);
      const agent = await startAgent(t, manager, { hostname: "only" });
      await createService(manager, sleepers("web", 2));
      await until("two running tasks", async () => (await runningTasks(manager)).length === 2, patienceMs);
      const before = taskProcesses(agent.dataDir);
      const ids = (await tasks(manager)).map(({ id }) => id).toSorted();
      const pid = manager.process.child.pid;
      const writing = writeSteadily(t, manager, "during");
      t.teardown(() => writing.stop());
      await until("the first writes", async () => (await serviceNames(manager)).length > 3, patienceMs);

      fill();
      let n = 0;
      await until(
        "writes to be rejected for that reason",
        async () => {
          const answer = await createService(manager, sleepers(`refused${(n += 1)}`, 0), 5_000).then(
            () => "accepted",
            (error: unknown) => String(error),
          );
          if (!/the log's disk is full: \d+ MB are free/.test(answer)) throw new Error(answer);
          return true;
        },
        patienceMs,
      );
      const { troubles } = await status(manager);
      t.regex(troubles.map(({ sentence }) => sentence).join(), /the log's disk is full/);
      const info = await runMuster(["--host", `unix://${join(manager.dataDir, "control.sock")}`, "info"]);
      t.regex(info.stdout, /the log's disk is full/);
      t.is((await nodeCalled(manager, "only")).status?.state, NodeStatus_State.READY);

      free();
      await accepted(manager);
      await createService(manager, sleepers("last", 1));
      const acknowledged = await writing.stop();
      await until("the new task to run", async () => (await runningTasks(manager)).length === 3, patienceMs);
      const names = new Set(await serviceNames(manager));
      t.deepEqual(
        acknowledged.filter((name) => !names.has(name)),
        [],
        "every acknowledged write is present",
      );
      t.is(manager.process.child.pid, pid);
      t.true(manager.process.isRunning);
      t.is(agent.sessions().length, 1, "the session survives");
      t.deepEqual(
        taskProcesses(agent.dataDir).filter(({ slot }) => slot.startsWith("web.")),
        before,
      );
      const now = (await tasks(manager)).map(({ id }) => id);
      t.deepEqual(
        ids.filter((id) => !now.includes(id)),
        [],
      );
      await until("no trouble to remain", async () => (await status(manager)).troubles.length === 0, patienceMs);
      t.log(`${acknowledged.length} writes acknowledged`);
    },
  );
}

for (const binary of natsBinaries)
  rootTest(
    `a manager that starts on a full disk is read, says why it rejects writes, and accepts them as soon as there is space (${binary})`,
    async (t) => {
      t.timeout(patient(600_000));
      const { manager, fill, free } = await onSmallDisk(t, binary);
      await createService(manager, sleepers("web", 0));
      fill();
      await manager.process.end("SIGKILL");
      await endProcessesOf(manager.dataDir);
      rmSync(join(manager.dataDir, "control.sock"));
      manager.process.start();
      await manager.ready();
      t.deepEqual(await serviceNames(manager), ["web"]);
      const reason = /the log's disk is full: \d+ MB are free/;
      // It serves from the log before it has found out why it cannot lead.
      await until("the reason", async () => reason.test(await manager.muster("info")), patienceMs);
      const refusal = await t.throwsAsync(createService(manager, sleepers("refused", 0), 10_000));
      t.regex(String(refusal), reason);
      const { healthy, troubles } = await status(manager);
      t.false(healthy);
      t.regex(troubles.map(({ sentence }) => sentence).join(), reason);
      free();
      await accepted(manager);
      t.true((await serviceNames(manager)).includes("web"));
      await until("health", async () => (await status(manager)).healthy, patienceMs);
    },
  );
