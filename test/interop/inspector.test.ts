// The walk of docs/inspector.md in a browser: an incident on a real cluster of a manager, three agents and a stock engine, seen live,
// stepped back to, recorded, and shown again when nothing runs any more.
import { join } from "node:path";
import type { Page } from "playwright-core";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { loggedIn } from "../fixtures/logged-in.ts";
import { mockDriver } from "../fixtures/plugin-launch.ts";
import { runMuster, startAgent, startManager, tempDir } from "../fixtures/muster.ts";
import { browserTest, openServed, seriousFindings } from "../fixtures/ui-page.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const lit = (state: string): string => `.state.here[data-state^="${state}"]`;
const actor = (process: string, id: string): string => `#/actor/${process}/${encodeURIComponent(id)}`;

async function goTo(page: Page, hash: string): Promise<void> {
  // A field would take the keys.
  await page.evaluate("document.activeElement.blur()");
  await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
}

/** Steps back by events of the chosen actor until the chart shows the state. */
async function stepBackTo(page: Page, state: string, stepsMax: number): Promise<void> {
  for (let step = 0; step < stepsMax; step += 1) {
    await page.keyboard.press("{");
    const isLit = page.locator(lit(state)).waitFor({ timeout: patient(2_000) });
    if (
      await isLit.then(
        () => true,
        () => false,
      )
    )
      return;
  }
  throw new Error(`none of the ${stepsMax} events before led to ${state}`);
}

browserTest("an incident is seen live, stepped back to, recorded and replayed without the cluster", async (t) => {
  t.timeout(patient(400_000));
  const manager = await startManager(t);
  await manager.patience();
  const args = ["--driver", `exec=${join(mockDriver, "../muster-driver-exec")}`];
  const agents = await Promise.all(
    ["one", "two", "three"].map((hostname) => startAgent(t, manager, { hostname, args })),
  );
  t.is(engineMissing(), null);
  const engine = await startEngine(t);
  await engine.join(await manager.muster("token", "worker"), manager.address);
  const nodes = await until("five nodes", async () => {
    const rows = await manager.json<{ readonly ID: string; readonly Hostname: string }>("node", "ls");
    return rows.length === 5 ? rows : undefined;
  });
  const idOf = (hostname: string): string => nodes.find((node) => node.Hostname === hostname)?.ID ?? "";
  const [managerNode] = await manager.json<{ readonly ID: string }>("node", "ls", "--filter", "role=manager");
  const leader = `manager-${managerNode?.ID}`;

  const host = `unix://${join(manager.dataDir, "control.sock")}`;
  const { page, errors } = await openServed(t, ["--host", host, "ui"]);

  // The tree: the manager and every agent, and a session for each node, the engine's included.
  const search = page.locator("input[type=search]");
  for (const hostname of ["one", "two", "three"]) {
    await search.fill(`agent-session/${hostname}`);
    await page.locator(".row.process", { hasText: `node-${idOf(hostname)}` }).waitFor();
  }
  await search.fill(`session/ ${leader}`);
  await page.locator(".row.kind small", { hasText: /^4$/ }).waitFor();

  // A chart whose lit state changes when its agent is killed, and the moment before.
  await goTo(page, actor(leader, `session/${idOf("one")}`));
  await page.locator(lit("serving.connected")).waitFor();
  await page.locator(".track[aria-disabled=false]").waitFor();
  await agents[0]?.process.end("SIGKILL");
  await page.locator(lit("serving.disconnected")).waitFor();
  await page.locator(".edge.taken", { hasText: "stream.broken" }).waitFor();
  // The time line has a step a second later, when those of other processes have come.
  await page.waitForTimeout(patient(3_000));
  await stepBackTo(page, "serving.connected", 5);
  await page.locator("header .link.past").waitFor();
  t.regex(page.url(), /[?&]at=20/);
  t.deepEqual(await seriousFindings(page), [], "the moment before");
  await page.getByRole("button", { name: "Back to live" }).click();
  await page.locator(lit("serving.disconnected")).waitFor();
  const lost = new Date().toISOString();

  // A service.
  const running = JSON.stringify({ command: "/bin/sleep", args: ["1000"] });
  const create = "service create --name web --replicas 2 --driver exec --constraint node.hostname!=one --driver-config";
  await manager.muster(...create.split(" "), running);
  const [web] = await manager.json<{ readonly ID: string }>("service", "ls");

  // A rollout that is paused with a button, and a terminal in a task.
  const button = (name: string) => page.getByRole("button", { name, exact: true });
  await goTo(page, `#/cluster/service/${web?.ID}`);
  await page.getByText("2 of 2 running").waitFor();
  await manager.muster("service", "update", "--detach", "--update-delay", "60s", "--env-add", "ROUND=2", "web");
  await page.locator(".rollout .badge", { hasText: "updating" }).waitFor();
  await button("Pause").click();
  await page.locator(".rollout .badge", { hasText: "paused" }).waitFor();
  await page.locator(".rollout-bar", { hasText: /1 done.*1 waiting/s }).waitFor();
  t.deepEqual(await seriousFindings(page), [], "a paused rollout");
  await page
    .locator(".cell", { has: page.locator(".mark.running") })
    .first()
    .click();
  await button("Open").click();
  await page.locator(".xterm-rows", { hasText: /[#$]/ }).waitFor();
  await page.keyboard.type("exit $((40 + 2))\r");
  await page.getByText("The command has ended with exit code 42").waitFor();
  t.deepEqual(await seriousFindings(page), [], "a terminal");

  // A role without rights sees the same, and is offered nothing.
  const reader = await openServed(t, ["ui"], await loggedIn(t, manager, { role: "read-only", name: "vera" }));
  await goTo(reader.page, `#/cluster/service/${web?.ID}`);
  await reader.page.locator(".rollout .badge", { hasText: "paused" }).waitFor();
  const offered = await reader.page.locator(".cluster button").allInnerTexts();
  t.deepEqual(
    offered.filter((text) => !text.includes("Logs")),
    [],
  );
  await goTo(page, `#/cluster/service/${web?.ID}`);
  await button("Abort …").click();
  await button("Abort and roll back").click();
  await page.locator(".rollout .badge", { hasText: "rollback completed" }).waitFor();

  // An update that fails: its rollout goes to rollback by itself.
  const failing = JSON.stringify({ command: "/bin/false", args: [] });
  const update =
    "service update --detach --update-delay 0s --update-failure-action rollback --update-monitor 5s --driver-config";
  await manager.muster(...update.split(" "), failing, "web");
  const rollout = `rollout/${web?.ID}`;
  await goTo(page, actor(leader, rollout));
  await page
    .locator(lit("rollback"))
    .or(page.locator(lit("over")))
    .waitFor();
  await until("the rollback", async () =>
    /rollback completed/.test(await manager.muster("service", "inspect", "--pretty", "web")),
  );
  t.deepEqual(errors, []);

  const file = join(tempDir(t, "recording"), "incident.mrec");
  const recorded = await runMuster(["record", "--host", host, "-o", file]);
  t.is(recorded.code, 0, recorded.stderr);
  for (const { process } of [...agents.slice(1), manager]) await process.end();

  const replay = await openServed(t, ["replay", file]);
  await replay.page.locator(".time-line", { hasText: "Recording" }).waitFor();
  // The page goes to the end of the recording first.
  await replay.page.waitForURL(/[?&]at=20/);
  await goTo(replay.page, `${actor(leader, `session/${idOf("one")}`)}?at=${lost}`);
  await replay.page.locator(".steps", { hasText: "stream.broken" }).waitFor();
  await replay.page.locator(lit("serving.disconnected")).waitFor();
  await stepBackTo(replay.page, "serving.connected", 20);
  t.deepEqual(await seriousFindings(replay.page), [], "a recording");
  t.deepEqual(replay.errors, []);

  const verified = await runMuster(["replay", file, "--verify"]);
  t.is(verified.code, 0, verified.stdout + verified.stderr);
  t.regex(verified.stdout, /^rollout +[1-9]/m);
  t.regex(verified.stdout, /^no difference in [1-9]\d* verified steps$/m);
});
