// The view of the cluster in a browser, with a made-up cluster.
import type { ExecutionContext } from "ava";
import { TaskState } from "../../proto/gen/messages.ts";
import { FakeCluster } from "../fixtures/ui-cluster.ts";
import { browserTest, openPage, seriousFindings, type OpenedPage } from "../fixtures/ui-page.ts";
import { startUiServer } from "../fixtures/ui-server.ts";

interface Opened extends OpenedPage {
  readonly cluster: FakeCluster;
}

async function opened(
  t: ExecutionContext,
  {
    role = "admin",
    scheme = "light",
    nodes = 4,
    services = 3,
    replicas = 5,
  }: {
    readonly role?: string;
    readonly scheme?: "light" | "dark";
    readonly nodes?: number;
    readonly services?: number;
    readonly replicas?: number;
  } = {},
): Promise<Opened> {
  const cluster = new FakeCluster({ nodes, services, replicas });
  const { server, page, errors } = await openPage(t, startUiServer(10, { role, cluster }), { scheme });
  await page.getByRole("link", { name: "Cluster" }).click();
  await page.waitForSelector(".cell");
  return { cluster, server, page, errors };
}

browserTest("2,000 tasks on 100 nodes are shown, and walked through with the keyboard", async (t) => {
  const { cluster, page, errors } = await opened(t, { nodes: 100, services: 20, replicas: 100 });
  t.is(await page.locator(".cell").count(), 2_000);
  t.is(await page.locator(".card").count(), 100);
  const [legend, matrix] = await Promise.all(
    [".looks", ".matrix"].map((selector) => page.locator(selector).boundingBox()),
  );
  t.true((legend?.y ?? 0) > (matrix?.y ?? 0), "no other view's style moves the legend");
  await page.getByRole("grid").focus();
  for (const key of ["Home", "ArrowRight", "ArrowDown", "Enter"]) await page.keyboard.press(key);
  await page.waitForURL(/#\/cluster\/task\/.+/);
  const id = decodeURIComponent(page.url().split("/").at(-1) ?? "");
  t.is(cluster.tasks.get(id)?.nodeId, "node2");
  await page.locator(".detail h2", { hasText: cluster.tasks.get(id)?.serviceAnnotations?.name ?? "?" }).waitFor();
  await page.keyboard.press("Escape");
  await page.locator(".detail").waitFor({ state: "detached" });
  t.deepEqual(errors, []);
});

browserTest("changes of tasks move cells and are listed as events", async (t) => {
  const { cluster, page, errors } = await opened(t);
  const [id = ""] = cluster.tasks.keys();
  cluster.setTask(id, TaskState.FAILED, {}, "exit code 1");
  await page.locator(`[data-task="${id}"] .mark.failed`).waitFor();
  await page.locator(".events li", { hasText: "failed on host-" }).waitFor();
  cluster.setTask(id, TaskState.PENDING, { nodeId: "" });
  await page.locator(`.card.unplaced [data-task="${id}"] .mark.waiting`).waitFor();
  t.deepEqual(errors, []);
});

browserTest("a service is created, scaled, updated, rolled back and removed, each with its plan before", async (t) => {
  const { cluster, page, errors } = await opened(t);
  await page.getByRole("link", { name: "+ New" }).click();
  await page.getByLabel("Name", { exact: true }).fill("bad name");
  // In a field the key does not close the form.
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Plan …" }).click();
  await page.getByText("the image is missing").waitFor();
  await page.getByText("expected letters, digits").waitFor();
  await page.getByLabel("Name", { exact: true }).fill("shop");
  await page.getByLabel("Image").fill("shop:1");
  await page.getByLabel("Environment").fill("MODE=test");
  await page.getByLabel("Replicas").fill("2");
  await page.getByRole("button", { name: "Plan …" }).click();
  await page.getByText("2 new, 0 replaced, 0 removed, 0 unchanged").waitFor();
  t.deepEqual(cluster.writes, [], "nothing is done before the plan was seen");
  await page.getByRole("button", { name: "Create shop" }).click();
  await page.locator(".detail h2", { hasText: "shop" }).waitFor();
  t.deepEqual(cluster.services.get("svc-shop")?.spec?.task?.container?.env, ["MODE=test"]);

  await page.getByLabel("Replicas").fill("4");
  await page.getByRole("button", { name: "Scale …" }).click();
  await page.getByText("2 new, 0 replaced, 0 removed, 2 unchanged").waitFor();
  await page.getByRole("button", { name: "Scale to 4" }).click();
  await page.getByText("4 of 4 running").waitFor();

  await page.getByRole("button", { name: "Update …" }).click();
  await page.getByLabel("Image").fill("shop:2");
  await page.getByLabel("Tasks at a time").fill("3");
  await page.getByRole("button", { name: "Plan …" }).click();
  await page.getByText("0 new, 4 replaced, 0 removed, 0 unchanged").waitFor();
  await page.getByRole("button", { name: "Update", exact: true }).click();
  await page.locator(".facts dd", { hasText: "shop:2" }).waitFor();
  t.is(cluster.services.get("svc-shop")?.spec?.update?.parallelism, 3);

  await page.getByRole("button", { name: "Roll back …" }).click();
  await page.getByText("4 replaced").waitFor();
  await page.getByRole("button", { name: "Roll back", exact: true }).click();
  await page.locator(".facts dd", { hasText: "shop:1" }).waitFor();

  await page.getByRole("button", { name: "Remove …" }).click();
  await page.getByText("4 tasks stop on host-").waitFor();
  await page.getByRole("button", { name: "Remove shop" }).click();
  await page.locator(".detail").waitFor({ state: "detached" });
  t.false(cluster.services.has("svc-shop"));
  t.deepEqual(cluster.writes, [
    "create shop",
    "update svc-shop",
    "update svc-shop",
    "update svc-shop",
    "remove svc-shop",
  ]);
  t.deepEqual(errors, []);
});

browserTest("a network is created and removed, each after what follows was said", async (t) => {
  const { cluster, page, errors } = await opened(t);
  await page.getByRole("link", { name: "New network" }).click();
  await page.getByLabel("Name", { exact: true }).fill("back.end");
  await page.getByLabel("Gateway").fill("10.1.0.1");
  await page.getByRole("button", { name: "Plan …" }).click();
  await page.getByText("expected up to 63 letters").waitFor();
  await page.getByText("a gateway needs a subnet").waitFor();
  await page.getByLabel("Name", { exact: true }).fill("back");
  await page.getByLabel("Subnet").fill("10.1.0.0/16");
  await page.getByLabel("No access to the outside").check();
  await page.getByRole("button", { name: "Plan …" }).click();
  await page.getByText("Tasks reach nothing outside of it.").waitFor();
  await page.locator("pre.spec", { hasText: "subnet: 10.1.0.0/16" }).waitFor();
  t.deepEqual(cluster.writes, []);
  await page.getByRole("button", { name: "Create back" }).click();
  await page.locator(".detail h2", { hasText: "back" }).waitFor();
  t.like(cluster.networks.get("net-back")?.spec, { internal: true, attachable: false });
  await page.locator("summary", { hasText: "Spec" }).click();
  await page.locator("pre.spec", { hasText: "internal: true" }).waitFor();
  await page.getByRole("button", { name: "Remove …" }).click();
  await page.getByText("No task uses back.").waitFor();
  await page.getByRole("button", { name: "Remove back" }).click();
  await page.locator(".detail").waitFor({ state: "detached" });
  t.deepEqual(cluster.writes, ["create network back", "remove network net-back"]);
  t.deepEqual(errors, []);
});

browserTest("a service is updated by its whole spec as YAML", async (t) => {
  const { cluster, page, errors } = await opened(t);
  await page.goto(page.url().replace(/#.*/, "#/cluster/service/svc-web"));
  await page.getByRole("button", { name: "Update …" }).click();
  await page.getByRole("button", { name: "Whole spec" }).click();
  const spec = page.getByLabel("Spec as YAML");
  const before = await spec.inputValue();
  t.regex(before, /^annotations:\n  name: web\n/);
  await spec.fill(before.replace("image:", "imagine:"));
  await page.getByRole("button", { name: "Plan …" }).click();
  await page.getByText("Unknown fields or values: task.container.imagine").waitFor();
  await spec.fill(before.replace("web:1.0", "web:2.0"));
  await page.getByRole("button", { name: "Plan …" }).click();
  await page.getByText("0 new, 5 replaced").waitFor();
  await page.getByRole("button", { name: "Update", exact: true }).click();
  await page.locator(".facts dd", { hasText: "web:2.0" }).waitFor();
  t.is(cluster.services.get("svc-web")?.spec?.task?.container?.image, "registry.example/web:2.0");
  t.deepEqual(errors, []);
});

browserTest("a conflict is shown beside its button, and a new plan keeps only the reader's own changes", async (t) => {
  const { cluster, page, errors } = await opened(t);
  await page.goto(page.url().replace(/#.*/, "#/cluster/service/svc-web"));
  await page.getByRole("button", { name: "Update …" }).click();
  await page.getByLabel("Replicas").nth(1).fill("7");
  await page.getByRole("button", { name: "Plan …" }).click();
  await page.getByText("2 new, 0 replaced").waitFor();
  cluster.rollOut("svc-web", "registry.example/web:9");
  await page.getByText("The service has changed since this plan was made").waitFor();
  await page.getByRole("button", { name: "Update", exact: true }).click();
  await page.getByText("it was changed in the meantime. Nothing was done").waitFor();
  await page.getByRole("button", { name: "Plan again" }).click();
  await page.getByText("The service has changed since").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Update", exact: true }).click();
  await page.getByText("7 of 7 running").waitFor();
  t.is(cluster.services.get("svc-web")?.spec?.task?.container?.image, "registry.example/web:9");
  t.deepEqual(errors, []);
});

browserTest("a rollout shows its phase and what blocks it, and is paused, stepped and aborted", async (t) => {
  const { cluster, page, errors } = await opened(t);
  cluster.rollOut("svc-api", "registry.example/api:2.0");
  await page.locator(".services .badge", { hasText: "updating" }).waitFor();
  await page.getByRole("link", { name: "api" }).first().click();
  await page.getByText("to become healthy").waitFor();
  await page.getByRole("button", { name: "Pause" }).click();
  await page.locator(".rollout .badge", { hasText: "paused" }).waitFor();
  await page.getByRole("button", { name: "Step" }).click();
  await page.locator(".rollout .badge", { hasText: "stepping" }).waitFor();
  await page.getByRole("button", { name: "Abort …" }).click();
  await page.getByText("5 replaced").waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  await page.locator(".rollout .badge", { hasText: "updating" }).waitFor();
  await page.getByRole("button", { name: "Abort …" }).click();
  await page.getByRole("button", { name: "Abort and roll back" }).click();
  await page.locator(".rollout .badge", { hasText: "rolling back" }).waitFor();
  t.deepEqual(cluster.writes, ["rollout paused", "rollout stepping", "rollout updating", "rollout rolling back"]);
  t.deepEqual(errors, []);
});

browserTest("a terminal in a task echoes what is typed, in colours, and tells how the command ended", async (t) => {
  const { cluster, page, errors } = await opened(t);
  const [id = ""] = cluster.tasks.keys();
  await page.goto(page.url().replace(/#.*/, `#/cluster/task/${id}`));
  await page.getByRole("button", { name: "Logs" }).click();
  await page.locator(".logs li", { hasText: "GET /items/29 200 87 ms" }).waitFor();
  await page.getByLabel("Command").fill(`sh -c "a b"`);
  await page.getByRole("button", { name: "Open" }).click();
  await page.locator(".xterm-rows", { hasText: "made-up shell" }).waitFor();
  t.is(
    await page.evaluate<string>(
      "getComputedStyle([...document.querySelectorAll('.xterm-rows span')].find((each) => each.textContent === 'made-up shell')).color",
    ),
    "rgb(200, 80, 20)",
  );
  await page.keyboard.type("echo hello\r");
  await page.locator(".xterm-rows div", { hasText: /^hello\s*$/ }).waitFor();
  // The key is the command's: it does not close the panel.
  await page.keyboard.press("Escape");
  await page.keyboard.type("\rexit\r");
  await page.getByText("The command has ended with exit code 3").waitFor();
  t.deepEqual(cluster.writes, ["exec sh -c a b"]);
  t.deepEqual(errors, []);
});

browserTest("a lost connection disables what it cannot do, and says so", async (t) => {
  const { page, server, errors } = await opened(t);
  await page.goto(page.url().replace(/#.*/, "#/cluster/service/svc-web"));
  await page.getByRole("button", { name: "Remove …" }).waitFor();
  await server.close();
  await page.getByText("from before the connection was lost").waitFor();
  t.true(await page.getByRole("button", { name: "Remove …" }).isDisabled());
  t.is(await page.locator(".cell").count(), 15, "the known objects stay");
  t.deepEqual(errors, []);
});

browserTest("a read-only user is offered no action, an operator none of administrators", async (t) => {
  const reader = await opened(t, { role: "read-only" });
  const [id = ""] = reader.cluster.tasks.keys();
  reader.cluster.rollOut("svc-api", "x");
  for (const part of ["service/svc-api", "node/node1", "network/net1", `task/${id}`]) {
    await reader.page.goto(reader.page.url().replace(/#.*/, `#/cluster/${part}`));
    await reader.page.locator(".why li").waitFor();
    t.deepEqual(
      (await reader.page.locator(".cluster button").allInnerTexts()).filter((text) => !text.includes("Logs")),
      [],
      part,
    );
  }
  t.is(await reader.page.getByRole("link", { name: "+ New" }).count(), 0);
  t.is(await reader.page.getByRole("link", { name: "New network" }).count(), 0);
  const operator = await opened(t, { role: "operator" });
  await operator.page.goto(operator.page.url().replace(/#.*/, "#/cluster/node/node1"));
  await operator.page.locator(".why li").waitFor();
  t.is(await operator.page.getByRole("button", { name: "Drain …" }).count(), 0);
  await operator.page.goto(operator.page.url().replace(/#.*/, "#/cluster/service/svc-web"));
  await operator.page.getByRole("button", { name: "Remove …" }).waitFor();
});

browserTest("an administrator drains a node after its effect was described", async (t) => {
  const { cluster, page } = await opened(t);
  await page.goto(page.url().replace(/#.*/, "#/cluster/node/node1"));
  await page.getByRole("button", { name: "Drain …" }).click();
  await page.getByText("stop and start on other nodes").waitFor();
  await page.getByRole("button", { name: "Drain host-1" }).click();
  await page.locator(".card .badge", { hasText: "draining" }).waitFor();
  t.deepEqual(cluster.writes, ["node node1 2"]);
});

for (const scheme of ["light", "dark"] as const)
  browserTest(
    `nothing serious in the cluster's views stands in the way of assistive technology: ${scheme}`,
    async (t) => {
      const { cluster, page } = await opened(t, { scheme });
      const [id = ""] = cluster.tasks.keys();
      cluster.rollOut("svc-api", "x");
      for (const part of [
        "",
        "/new",
        "/new-network",
        "/service/svc-api",
        "/node/node1",
        "/network/net1",
        `/task/${id}`,
      ]) {
        await page.goto(page.url().replace(/#.*/, `#/cluster${part}`));
        if (part.startsWith("/service")) await page.getByRole("button", { name: "Roll back …" }).click();
        if (part.startsWith("/task")) {
          await page.getByRole("button", { name: "Logs" }).click();
          await page.getByRole("button", { name: "Open" }).click();
          await page.locator(".xterm-rows", { hasText: "made-up shell" }).waitFor();
        }
        t.deepEqual(await seriousFindings(page), [], part);
      }
    },
  );

browserTest("a moment of the past shows the objects of that moment, and offers nothing", async (t) => {
  const { cluster, page, server, errors } = await opened(t);
  const [id = ""] = cluster.tasks.keys();
  server.step(1);
  await page.waitForTimeout(50);
  const at = new Date().toISOString();
  await page.waitForTimeout(50);
  cluster.setTask(id, TaskState.FAILED, {}, "exit code 1");
  server.step(1);
  const cell = page.locator(`[data-task="${id}"]`);
  await cell.locator(".mark.failed").waitFor();
  await page.goto(`${server.url}#/cluster/service/svc-web?at=${at}`);
  await cell.locator(".mark.running").waitFor();
  await page.locator("header .link.past").waitFor();
  t.deepEqual(await page.locator(".cluster button").allInnerTexts(), []);
  t.is(await page.getByRole("link", { name: "+ New" }).count(), 0);
  // Links stay at that moment.
  await cell.click();
  await page.locator(".facts dd", { hasText: "running, for" }).waitFor();
  t.true(page.url().includes("?at="));
  await page.getByRole("button", { name: "Back to live" }).click();
  await cell.locator(".mark.failed").waitFor();
  t.deepEqual(errors, []);
});

browserTest("a server without the cluster's objects says so", async (t) => {
  const { page } = await openPage(t, 10);
  await page.getByRole("link", { name: "Cluster" }).click();
  await page.getByText("This server does not keep the objects of the cluster").waitFor();
  t.is(await page.locator(".card").count(), 0);
});
