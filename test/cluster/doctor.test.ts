// `muster doctor` on this machine and on a real cluster: what is in order, what is not, and its exit status.
import { readdirSync } from "node:fs";
import test from "ava";
import type { Finding } from "../../cli/doctor/finding.ts";
import { runMuster, startAgent, startManager, tempDir } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";

test.serial("doctor measures the machine, examines the cluster, and fails when no manager answers", async (t) => {
  const folder = tempDir(t, "doctor");
  const alone = await runMuster(["doctor", "--machine", "--data-dir", folder]);
  t.is(alone.code, 0, alone.stdout);
  t.regex(alone.stdout, /^ok +disk: [\d,]+ MiB of [\d,]+ MiB are free at /m);
  t.regex(alone.stdout, /^(?:ok|warning) +fsync: a write is on the disk of \S+ after [\d.]+ ms \(median\)/m);
  t.regex(alone.stderr, /^0 problems, \d+ warnings?\n$/);
  t.deepEqual(readdirSync(folder), [], "it leaves nothing behind");

  const manager = await startManager(t);
  await startAgent(t, manager, { hostname: "one" });
  const examine = async (...flags: readonly string[]) => {
    const host = ["--host", `unix://${manager.dataDir}/control.sock`];
    const ran = await runMuster([...host, "doctor", "--cluster", "--format", "json", ...flags]);
    const findings = ran.stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Finding);
    return { code: ran.code, of: (check: string) => findings.filter((each) => each.check === check) };
  };
  const well = await examine();
  t.is(well.code, 0);
  for (const check of ["manager", "leader", "managers", "nodes", "certificates", "root certificate", "versions"])
    t.is(well.of(check)[0]?.level, "ok", check);
  t.true(well.of("nats").some(({ found, level }) => level === "warning" && /one replica/.test(found)));

  const nowhere = await runMuster(["--host", `unix://${folder}/none.sock`, "doctor", "--cluster"]);
  t.is(nowhere.code, 1);
  t.regex(
    nowhere.stdout,
    /^PROBLEM +manager: cannot connect to the manager at .*\n +→ name a manager with --host or --context\n$/,
  );
});

test.serial("doctor compares the clocks of the managers with each other and with this machine's", async (t) => {
  const first = await startManager(t);
  const clocks = async (): Promise<Finding | undefined> => {
    const host = ["--host", `unix://${first.dataDir}/control.sock`];
    const { stdout } = await runMuster([...host, "doctor", "--cluster", "--format", "json"]);
    const findings = stdout.trim().split("\n");
    return findings.map((line) => JSON.parse(line) as Finding).find(({ check }) => check === "clocks");
  };
  t.is((await clocks())?.level, "ok");
  // A minute and a half: it may join, and differs too much.
  const shift = "const now = Date.now; Date.now = () => now() + 90_000;";
  const env = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(shift)}` };
  await startManager(t, { join: first, env });
  const found = await until("the second clock", async () => {
    const each = await clocks();
    return each?.level === "ok" ? null : each;
  });
  t.is(found.level, "problem");
  t.regex(found.found, / is (?:8\d|9\d) s ahead of /);
  t.not(found.remedy, "");
});
