// The view of the cluster in a browser, served by 'muster ui' through a manager that does not lead: its rollout buttons and
// terminals reach the leader, and nodes at either manager; both go on when the leader is killed.
import type { ExecutionContext } from "ava";
import { join } from "node:path";
import { runningTasks, status } from "../fixtures/control-client.ts";
import { startAgent, startManager, type TestManager } from "../fixtures/muster.ts";
import { natsServer } from "../fixtures/nats-server.ts";
import { mockDriver } from "../fixtures/plugin-launch.ts";
import { browserTest, openServed } from "../fixtures/ui-page.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const execDriver = join(mockDriver, "../muster-driver-exec");

/** Agent `near` is at the leader, `far` at the follower, and the page is the follower's. */
async function world(t: ExecutionContext) {
  const { server } = await natsServer(t);
  const nats = server.url.replace("//", `//${server.user}:${server.pass}@`);
  const leader = await startManager(t, { nats });
  await leader.patience();
  const follower = await startManager(t, { nats, join: leader });
  for (const [hostname, manager] of [
    ["near", leader],
    ["far", follower],
  ] as const)
    await startAgent(t, manager, { hostname, args: ["--driver", `exec=${execDriver}`] });
  for (const manager of [leader, follower]) t.is((await status(manager)).sessions, 1);
  const { managerId } = await status(leader);
  await until("a follower to know its leader", async () => (await status(follower)).leaderId === managerId);
  const socket = `unix://${join(follower.dataDir, "control.sock")}`;
  const { page, errors } = await openServed(t, ["--host", socket, "ui"]);
  await page.getByRole("link", { name: "Cluster" }).click();
  await page.locator(".card", { hasText: "far" }).waitFor();
  return { leader, follower, page, errors, button: (name: string) => page.getByRole("button", { name, exact: true }) };
}

const phaseOf = async (manager: TestManager): Promise<string> =>
  /^web: (\w+)/.exec(await manager.muster("service", "rollout", "status", "web"))?.[1] ?? "";

browserTest(
  "a rollout is paused, stepped, resumed and aborted at a manager that does not lead, also when the leader dies",
  async (t) => {
    t.timeout(patient(300_000));
    const { leader, follower, page, errors, button } = await world(t);
    const sleeping = ["--driver", "exec", "--update-delay", "60s", "--", "sleep", "1000"];
    await leader.muster("service", "create", "--name", "web", "--replicas", "4", ...sleeping);
    await page.locator(".services a", { hasText: "web" }).click();
    await page.getByText("4 of 4 running").waitFor();
    await leader.muster("service", "update", "-d", "--env-add", "ROUND=2", "web");

    const badge = (text: string | RegExp) => page.locator(".rollout .badge", { hasText: text });
    await badge("updating").waitFor();
    await button("Pause").click();
    await badge("paused").waitFor();
    t.is(await phaseOf(leader), "paused");
    await page.locator(".rollout-bar", { hasText: /1 done.*3 waiting/s }).waitFor();
    await button("Step").click();
    await page.locator(".rollout-bar", { hasText: /2 done.*2 waiting/s }).waitFor();
    await badge("paused").waitFor();

    // The page's own manager takes over, and the rollout is where it was.
    await leader.process.end("SIGKILL");
    await until("another leader", async () => {
      const { leaderId, managerId } = await status(follower);
      return leaderId === managerId;
    });
    t.is(await phaseOf(follower), "paused");
    await button("Resume").click();
    await badge("updating").waitFor();
    t.is(await phaseOf(follower), "updating");
    await page.locator(".rollout-bar", { hasText: /3 done/ }).waitFor();
    await button("Abort …").click();
    await page.locator(".plan .totals", { hasText: "3 replaced" }).waitFor();
    await button("Abort and roll back").click();
    await badge(/rolling back|rollback completed/).waitFor();
    t.notRegex(await follower.muster("service", "inspect", "--pretty", "web"), /ROUND=2/);
    t.deepEqual(errors, []);
  },
);

browserTest(
  "terminals reach tasks of nodes at either manager, and end with a reason when their node's manager dies",
  async (t) => {
    t.timeout(patient(300_000));
    const { leader, page, errors, button } = await world(t);
    const sleeping = ["--driver", "exec", "--mode", "global", "--", "sleep", "1000"];
    await leader.muster("service", "create", "--name", "says", ...sleeping);
    await until("a task on each node", async () => (await runningTasks(leader)).length === 2);
    const open = async (hostname: string): Promise<void> => {
      await page.locator(".card", { hasText: hostname }).locator(".cell").first().click();
      await page.locator(".detail .facts a", { hasText: hostname }).waitFor();
      await button("Open").click();
      await page.locator(".xterm-rows", { hasText: /[#$]/ }).waitFor();
      await page.keyboard.type("echo $((40 + 2))\r");
      await page.locator(".xterm-rows div", { hasText: /^42\s*$/ }).waitFor();
    };
    await open("far");
    await page.keyboard.type("exit 3\r");
    await page.getByText("The command has ended with exit code 3").waitFor();
    await open("near");
    await leader.process.end("SIGKILL");
    await page.getByText("Cannot run the command: the task's node was lost during the call").waitFor();
    // Its node is then at the other manager.
    await until("a terminal in the same task", async () => {
      await button("Open").click();
      const prompt = page.locator(".terminal", { has: page.locator(".xterm-rows", { hasText: /[#$]/ }) });
      const refusal = page.locator(".terminal .note");
      await prompt.or(refusal).first().waitFor();
      return (await refusal.count()) === 0;
    });
    t.deepEqual(errors, []);
  },
);
