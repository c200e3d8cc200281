// The view of the cluster in a browser, of a real cluster: a manager, two agents, and 'muster ui'.
import { join } from "node:path";
import type { ExecutionContext } from "ava";
import { loggedIn } from "../fixtures/logged-in.ts";
import { mockDriver } from "../fixtures/plugin-launch.ts";
import { startAgent, startManager, type TestManager } from "../fixtures/muster.ts";
import { browserTest, openServed, seriousFindings } from "../fixtures/ui-page.ts";
import { patient } from "../support/slowness.ts";

const execDriver = join(mockDriver, "../muster-driver-exec");

/** The view of the cluster, as 'muster ui' with these arguments before it serves it. */
async function opened(t: ExecutionContext, args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const { page, errors } = await openServed(t, [...args, "ui"], env);
  await page.getByRole("link", { name: "Cluster" }).click();
  await page.locator(".card").first().waitFor();
  return { page, errors };
}

async function world(t: ExecutionContext): Promise<TestManager> {
  const manager = await startManager(t);
  await manager.patience();
  await Promise.all(
    ["one", "two"].map((hostname) => startAgent(t, manager, { hostname, args: ["--driver", `exec=${execDriver}`] })),
  );
  return manager;
}

const localTo = ({ dataDir }: TestManager): readonly string[] => ["--host", `unix://${join(dataDir, "control.sock")}`];

browserTest("a service is created, scaled, updated, paused, rolled back and removed in the page", async (t) => {
  t.timeout(patient(300_000));
  const manager = await world(t);
  const { page, errors } = await opened(t, localTo(manager));
  const button = (name: string) => page.getByRole("button", { name, exact: true });
  await page.locator(".card", { hasText: "two" }).waitFor();

  await page.getByRole("link", { name: "+ New" }).click();
  await button("Processes").click();
  await page.getByLabel("Name", { exact: true }).fill("web");
  await page.getByLabel("Command").fill("sleep");
  await page.getByLabel("Arguments").fill("1000");
  await page.getByLabel("Replicas").fill("2");
  await page.getByLabel("Delay between").fill("60");
  await button("Plan …").click();
  await page.getByText("2 new, 0 replaced, 0 removed, 0 unchanged").waitFor();
  t.deepEqual(await seriousFindings(page), [], "a plan");
  t.deepEqual(await manager.json("service", "ls"), [], "the plan has changed nothing");
  await button("Create web").click();
  await page.getByText("2 of 2 running").waitFor();

  await page.locator(".scale input").fill("3");
  await button("Scale …").click();
  await page.getByText("1 new, 0 replaced, 0 removed, 2 unchanged").waitFor();
  await button("Scale to 3").click();
  await page.getByText("3 of 3 running").waitFor();
  t.is(await page.locator(".cell .mark.running").count(), 3);

  await button("Update …").click();
  await page.getByLabel("Environment").fill("ROUND=2");
  await button("Plan …").click();
  await page.getByText("0 new, 3 replaced, 0 removed, 0 unchanged").waitFor();
  await button("Update").click();
  await page.locator(".rollout .badge", { hasText: "updating" }).waitFor();
  await button("Pause").click();
  await page.locator(".rollout .badge", { hasText: "paused" }).waitFor();
  t.regex(await manager.muster("service", "rollout", "status", "web"), /^web: paused/);
  // Only the batch that had begun is done.
  await page.locator(".rollout-bar", { hasText: /1 done.*2 waiting/s }).waitFor();
  await page.locator(".services .badge", { hasText: "paused" }).waitFor();
  t.deepEqual(await seriousFindings(page), [], "a paused rollout");
  t.regex(await manager.muster("service", "inspect", "--pretty", "web"), /ROUND=2/);
  await button("Step").click();
  await page.locator(".rollout-bar", { hasText: /2 done.*1 waiting/s }).waitFor();
  await page.locator(".rollout .badge", { hasText: "paused" }).waitFor();
  await button("Resume").click();
  await page.locator(".rollout .badge", { hasText: "updating" }).waitFor();

  await button("Roll back …").click();
  await page.locator(".plan .totals").waitFor();
  await button("Roll back").click();
  await page.locator(".rollout .badge", { hasText: /rolling back|rollback completed/ }).waitFor();
  t.notRegex(await manager.muster("service", "inspect", "--pretty", "web"), /ROUND=2/);

  await button("Remove …").click();
  await page.getByText("clients can no longer reach web").waitFor();
  await button("Remove web").click();
  await page.locator(".detail").waitFor({ state: "detached" });
  await page.getByText("No services yet.").waitFor();
  t.deepEqual(await manager.json("service", "ls"), []);
  t.deepEqual(errors, []);
});

browserTest("a network is created and removed in the page, and not while a service uses it", async (t) => {
  t.timeout(patient(300_000));
  const manager = await world(t);
  const { page, errors } = await opened(t, localTo(manager));
  const button = (name: string) => page.getByRole("button", { name, exact: true });
  const names = async (): Promise<readonly string[]> =>
    (await manager.json<{ readonly Name: string }>("network", "ls"))
      .map(({ Name }) => Name)
      .filter((name) => name !== "ingress");
  await page.getByRole("link", { name: "New network" }).click();
  await page.getByLabel("Name", { exact: true }).fill("back");
  await button("Plan …").click();
  await page.getByText("A subnet is taken from").waitFor();
  t.deepEqual(await names(), [], "the plan has changed nothing");
  await button("Create back").click();
  await page.locator(".detail h2", { hasText: "back" }).waitFor();
  await page.locator(".detail .facts dd", { hasText: /^10\..*, gateway 10\./ }).waitFor();
  t.deepEqual(await names(), ["back"]);
  t.deepEqual(await seriousFindings(page), [], "a network");
  await page.locator(".events li", { hasText: "back" }).waitFor();

  const attached = ["--name", "web", "--replicas", "0", "--network", "back"];
  await manager.muster("service", "create", "-d", ...attached, "--driver", "exec", "--", "sleep", "1000");
  await page.locator(".detail .links a", { hasText: "web" }).waitFor();
  await button("Remove …").click();
  await page.locator(".plan .failure", { hasText: "web" }).waitFor();
  t.is(await button("Remove back").count(), 0);
  await manager.muster("service", "rm", "web");
  await button("Remove back").click();
  await page.locator(".detail").waitFor({ state: "detached" });
  t.deepEqual(await names(), []);
  t.deepEqual(errors, []);
});

browserTest("a terminal in a task runs commands, its output is shown, and a node is drained", async (t) => {
  t.timeout(patient(300_000));
  const manager = await world(t);
  const config = JSON.stringify({ command: "/bin/sh", args: ["-c", "echo begun; exec sleep 1000"] });
  await manager.muster("service", "create", "--name", "says", "--driver", "exec", "--driver-config", config);
  const { page, errors } = await opened(t, localTo(manager));
  await page.locator(".cell .mark.running").waitFor();
  await page.getByRole("grid").focus();
  for (const key of ["Home", "Enter"]) await page.keyboard.press(key);
  await page.locator(".detail h2", { hasText: "says.1" }).waitFor();
  await page.getByRole("button", { name: "Logs" }).click();
  await page.locator(".logs li", { hasText: "begun" }).waitFor();
  await page.locator(".why li").first().waitFor();
  await page.getByRole("button", { name: "Open" }).click();
  await page.locator(".xterm-rows", { hasText: /[#$]/ }).waitFor();
  await page.keyboard.type("echo $((40 + 2))\r");
  await page.locator(".xterm-rows div", { hasText: /^42\s*$/ }).waitFor();
  t.deepEqual(await seriousFindings(page), [], "a task with its logs and a terminal");
  await page.keyboard.type("exit 7\r");
  await page.getByText("The command has ended with exit code 7").waitFor();

  const node = await page.locator(".facts a").nth(1).innerText();
  await page.locator(".facts a").nth(1).click();
  await page.getByRole("button", { name: "Drain …" }).click();
  await page.getByText(`${node} gets no new tasks, and its 1 task`).waitFor();
  const before = new Date().toISOString();
  await page.getByRole("button", { name: `Drain ${node}` }).click();
  await page.locator(".card .badge", { hasText: "draining" }).waitFor();
  await page
    .locator(".card", { hasText: node === "one" ? "two" : "one" })
    .locator(".mark.running")
    .waitFor();
  await page.locator(".events li", { hasText: "draining" }).waitFor();
  t.deepEqual(await seriousFindings(page), [], "a node that drains");
  await page.getByRole("link", { name: "Sequence", exact: true }).click();
  await page.locator(".traces tbody a").first().click();
  await page.locator(".sequence .lane").first().waitFor();
  t.deepEqual(await seriousFindings(page), [], "a sequence");
  await page.getByRole("link", { name: "Actors", exact: true }).click();
  await page.locator(".row.actor").first().click();
  await page.locator(".state.here").first().waitFor();
  t.deepEqual(await seriousFindings(page), [], "actors, and a chart");

  // Back to the moment before, which the manager reads from its history.
  await page.goto(page.url().replace(/#.*/, `#/cluster?at=${before}`));
  await page.locator("header .link.past").waitFor();
  await page.locator(".card", { hasText: node }).locator(".mark.running").waitFor();
  t.is(await page.locator(".card", { hasText: node }).locator(".badge").count(), 0);
  t.deepEqual(await seriousFindings(page), [], "a moment of the past");
  t.is(await page.getByRole("link", { name: "+ New" }).count(), 0);
  t.deepEqual(errors, []);
});

browserTest("a user with the role read-only sees the cluster, and is offered no action", async (t) => {
  t.timeout(patient(300_000));
  const manager = await world(t);
  await manager.muster("service", "create", "--name", "web", "--driver", "exec", "--", "sleep", "1000");
  const { page, errors } = await opened(t, [], await loggedIn(t, manager, { role: "read-only", name: "vera" }));
  await page.locator(".who", { hasText: "read-only" }).waitFor();
  await page.locator(".cell .mark.running").click();
  await page.locator(".why li").first().waitFor();
  const offered = async (): Promise<readonly string[]> =>
    (await page.locator(".cluster button").allInnerTexts()).filter((text) => !text.includes("Logs"));
  t.deepEqual(await offered(), [], "of a task");
  await page.locator(".services a").first().click();
  await page.locator(".why li").first().waitFor();
  t.deepEqual(await offered(), [], "of a service");
  await page.locator(".card a").first().click();
  await page.locator(".why li").first().waitFor();
  t.deepEqual(await offered(), [], "of a node");
  t.is(await page.getByRole("link", { name: "+ New" }).count(), 0);
  t.deepEqual(errors, []);
});
