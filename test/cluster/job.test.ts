// Jobs and a schedule over real processes: they run to completion, and continue under another manager process.
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { startAgent, startManager, tempDir } from "../fixtures/muster.ts";
import { endProcessesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

test.serial("jobs run to completion, fail permanently when they must, and keep their history", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  await startAgent(t, manager);
  const dir = tempDir(t, "job");
  const log = join(dir, "log");
  const lines = (): readonly string[] =>
    existsSync(log)
      ? readFileSync(log, "utf8")
          .split("\n")
          .filter((line) => line !== "")
      : [];
  const exec = (script: string): string[] => ["--driver", "exec", "--env", "SLOT={{.Task.Slot}}", "sh", "-c", script];

  const count = ["--name", "count", "--total", "6", "--max-concurrent", "2", "--wait", "--quiet"];
  await manager.muster("job", "run", ...count, ...exec(`echo $SLOT >> ${log}`));
  t.deepEqual(lines().toSorted(), ["0", "1", "2", "3", "4", "5"]);
  t.regex(await manager.muster("job", "ls"), /count +succeeded +6\/6/);
  t.regex(await manager.muster("service", "ls"), /count +replicated job +0\/0 \(6\/6 completed\)/);
  t.regex(await manager.muster("job", "ps", "count"), /count\.0 /);
  t.regex(await manager.muster("why", "count"), /nothing: the job has succeeded, 6 of 6 done/);
  await manager.muster("job", "rerun", "count");
  await until("the second iteration", () => lines().length === 12);
  await until("its history", async () => /1 +\S.* 6 +0 +0\n0 /.test(await manager.muster("job", "history", "count")));

  const fails = ["--name", "fails", "--restart-max-attempts", "1", "--restart-delay", "100ms", "--wait", "--quiet"];
  const refused = await t.throwsAsync(manager.muster("job", "run", ...fails, ...exec("echo no; exit 3")));
  t.regex(
    String((refused as Error & { stderr?: string }).stderr),
    /1 of 1 tasks of the job failed for good: .*exit \(3\)/,
  );
  t.regex(await manager.muster("job", "ls"), /fails +failed +0\/1/);

  // Each run adds a line with its due time; the manager is killed once between two runs and once during one.
  const runs = join(dir, "runs");
  const due = (): readonly string[] => (existsSync(runs) ? readFileSync(runs, "utf8").split("\n").slice(0, -1) : []);
  const schedule = ["--schedule", "*/2 * * * * *", "--name", "tick", "--history", "20", "--overlap", "allow"];
  const tick = ["--driver", "exec", "--env", "RUN={{.Service.Name}}", "sh", "-c", `echo $RUN >> ${runs}`];
  await manager.muster("job", "run", ...schedule, ...tick);
  appendFileSync(runs, "");
  await until("two runs", () => due().length >= 2);
  await manager.process.end("SIGKILL");
  await endProcessesOf(manager.dataDir);
  manager.process.start();
  await manager.ready();
  const before = due().length;
  await until("two more runs", () => due().length >= before + 2, 60_000);
  await manager.muster("job", "pause", "tick");
  const steady = await until(
    "the last run",
    async () => !/ active /.test(await manager.muster("job", "history", "tick")),
  );
  t.true(steady);
  const names = due();
  t.is(new Set(names).size, names.length, "no run started twice");
  t.regex(await manager.muster("why", "tick"), /an operator to resume its schedule/);
  await manager.muster("job", "rm", "tick");
  await until("the runs to be removed", async () => !(await manager.muster("job", "ls")).includes("tick"));
});
