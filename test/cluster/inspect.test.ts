// `muster inspect` against a real manager and agent: the chart of the node's session changes when the agent is killed.
import test from "ava";
import { MusterProcess, runMuster, startAgent, startManager } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

test.serial("muster inspect shows a killed agent in the chart of its node's session, and follows it", async (t) => {
  t.timeout(patient(180_000));
  const manager = await startManager(t);
  await manager.patience();
  const agent = await startAgent(t, manager, { hostname: "worker-1" });
  const host = ["-H", `${manager.dataDir}/control.sock`];
  const drawn = (): Promise<string> => manager.muster("inspect", "session/worker-1");
  await until("the session", async () => /^● {3}connected/m.test(await drawn()));

  const table = await manager.muster("inspect");
  for (const id of ["session/", "agent-session/", "scheduler/", "ledger"]) t.true(table.includes(`\n${id}`), id);
  t.regex(table, /^session\/\w+ +worker-1 +serving\.connected /m);
  const agents = await manager.json<{ Host: string; Kind: string }>("inspect", "--process", "worker-1");
  t.true(agents.some(({ Kind }) => Kind === "agent-session"));
  t.true(agents.every(({ Host }) => Host === "worker-1"));

  const lines = new MusterProcess(manager.dataDir, ["inspect", ...host, "-f", "session/worker-1"]);
  const objects = new MusterProcess(manager.dataDir, [
    "inspect",
    ...host,
    "-f",
    "--format",
    "json",
    "session/worker-1",
  ]);
  t.teardown(() => Promise.all([lines.end("SIGKILL"), objects.end("SIGKILL")]));
  await until("both to follow", () => /● {3}connected/.test(lines.output) && objects.output.includes('"Type":"actor"'));
  await agent.process.end("SIGKILL");
  await until("the step as a line", () => /Z session\/\w+ stream\.broken → serving\.disconnected/.test(lines.output));
  await until("the step as an object", () => objects.output.includes('"Event":"stream.broken"'));
  await until("the chart without the agent", async () =>
    /^● (?: {2}disconnected|suspect|checking)/m.test(await drawn()),
  );

  t.is(await lines.end("SIGINT"), 0, lines.output);
  t.is(await objects.end("SIGTERM"), 0, objects.output);
  for (const line of objects.output.trim().split("\n")) t.notThrows(() => JSON.parse(line), line);
  const closed = await runMuster(["inspect", ...host, "-f", "--format", "json"], {
    wrap: ["bash", "-c", '"$0" "$@" | head -n 1; exit "${PIPESTATUS[0]}"'],
  });
  t.is(closed.code, 0, closed.stderr);
  t.like(JSON.parse(closed.stdout), { Type: "actor" });
});
