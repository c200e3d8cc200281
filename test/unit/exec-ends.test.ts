// Exits of processes that are not children of the exec driver: detected cheaply, however many there are.
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { Ends } from "../../drivers/exec/ends.ts";
import { bootId, parseStat, processes, type ProcessName } from "../../drivers/exec/process.ts";
import { until } from "../fixtures/until.ts";

const silent = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

function folder(t: ExecutionContext): string {
  const path = mkdtempSync(join(tmpdir(), "muster-ends-"));
  t.teardown(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** A process that sleeps, and its name. */
async function sleeper(t: ExecutionContext): Promise<{ readonly child: ChildProcess; readonly name: ProcessName }> {
  const child = spawn("sleep", ["600"], { stdio: "ignore" });
  t.teardown(() => child.kill("SIGKILL"));
  const { pid = 0 } = child;
  const startTime = await until("its start", () => parseStat(readFileSync(`/proc/${pid}/stat`, "latin1"))?.startTime);
  return { child, name: { pid, startTime, bootId: bootId() } };
}

test("few of many tasks are checked each second, and a killed one is noticed at once", async (t) => {
  let looks = 0;
  let rounds = 0;
  const ends = new Ends(folder(t), silent, {
    isAlive: (name) => {
      looks += 1;
      return processes.isAlive(name);
    },
    pids: () => {
      rounds += 1;
      return processes.pids();
    },
  });
  const own = await sleeper(t);
  const ended: number[] = [];
  // Many names for one process: only the checks are counted.
  const waits = Array.from({ length: 400 }, (_, at) => ends.ended(own.name, `run-${at}`).then(() => ended.push(at)));
  const other = await sleeper(t);
  const killed = ends.ended(other.name, "killed");
  const [looksBefore, roundsBefore] = [looks, rounds];
  await until("three rounds of checks", () => rounds >= roundsBefore + 3);
  t.true(looks - looksBefore <= (rounds - roundsBefore) * 32, `${looks - looksBefore} checks in ${rounds} rounds`);
  other.child.kill("SIGKILL");
  await killed;
  t.deepEqual(ended, []);
  own.child.kill("SIGKILL");
  await Promise.all(waits);
});

test("a process whose pid was reused counts as exited", async (t) => {
  const ends = new Ends(folder(t), silent);
  const { child, name } = await sleeper(t);
  const waits = Array.from({ length: 100 }, (_, at) => ends.ended(name, `run-${at}`));
  const stranger = { ...name, startTime: name.startTime - 1 };
  await ends.ended(stranger, "stranger");
  child.kill("SIGKILL");
  await Promise.all(waits);
  t.pass();
});
