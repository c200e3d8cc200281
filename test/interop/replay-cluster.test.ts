// The view of the cluster in a recording, in a browser: objects, rollout and changes follow the cursor of the time line.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  Annotations,
  Network,
  NetworkAttachment,
  NetworkSpec,
  Node,
  NodeDescription,
  NodeSpec,
  NodeStatus,
  NodeStatus_State,
  ReplicatedService,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  UpdateStatus,
  UpdateStatus_UpdateState,
  Version,
  type RecordingPart,
} from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import { madeFeeds } from "../fixtures/feed-history.ts";
import { tempDir } from "../fixtures/muster.ts";
import { browserTest, openServed, seriousFindings } from "../fixtures/ui-page.ts";
import { rangeWorld } from "../support/log-ranges.ts";
import { createSigner, feedParts, fileOf, headPart, sealedParts } from "../support/recordings.ts";

const stepMs = 10_000;
const acts = 6;

/** A service on two nodes that is created, runs, is updated to an image that fails, and is removed: `stepMs` apart. */
async function recordedIncident() {
  const { manager, record, wait } = rangeWorld();
  const { clock, drop, seed } = manager;
  // The first moment is not the epoch of the simulated clock.
  await wait(stepMs);
  const network = Network.create({
    id: "net1",
    spec: NetworkSpec.create({ annotations: Annotations.create({ name: "front" }) }),
  });
  seed("network", network);
  for (const [id, hostname] of [
    ["n1", "alpha"],
    ["n2", "beta"],
  ] as const)
    seed(
      "node",
      Node.create({
        id,
        spec: NodeSpec.create({}),
        description: NodeDescription.create({ hostname }),
        status: NodeStatus.create({ state: NodeStatus_State.READY }),
      }),
    );
  const fromMs = clock.now();
  await wait(stepMs);
  const spec = (forceUpdate: number): ServiceSpec =>
    ServiceSpec.create({
      annotations: Annotations.create({ name: "shop" }),
      replicated: ReplicatedService.create({ replicas: 2 }),
      task: TaskSpec.create({ forceUpdate }),
    });
  const service = (version: number, updateStatus: UpdateStatus | null): Service =>
    Service.create({
      id: "shop1",
      spec: spec(version),
      previousSpec: version > 1 ? spec(version - 1) : null,
      specVersion: Version.create({ index: version }),
      updateStatus,
    });
  const task = (id: string, slot: number, state: TaskState, err = ""): Task =>
    Task.create({
      id,
      serviceId: "shop1",
      slot,
      nodeId: `n${slot}`,
      serviceAnnotations: Annotations.create({ name: "shop" }),
      spec: TaskSpec.create(),
      status: TaskStatus.create({ state, err, timestamp: timestampOf(clock.now()) }),
      desiredState: TaskState.RUNNING,
      networks: [NetworkAttachment.create({ network, addresses: [`10.0.0.${slot}/24`] })],
    });
  const times: number[] = [];
  const happen = async (act: () => void): Promise<void> => {
    act();
    times.push(clock.now());
    await wait(stepMs);
  };
  await happen(() => seed("service", service(1, null)));
  await happen(() => seed("task", task("one", 1, TaskState.RUNNING), task("two", 2, TaskState.RUNNING)));
  await happen(() =>
    seed(
      "service",
      service(
        2,
        UpdateStatus.create({
          state: UpdateStatus_UpdateState.UPDATING,
          startedAt: timestampOf(clock.now()),
          message: "update in progress",
        }),
      ),
    ),
  );
  await happen(() => seed("task", task("two", 2, TaskState.FAILED, "PASSWORD=hunter2 is wrong")));
  await happen(() => drop("service", "shop1"));
  await happen(() => {
    drop("task", "one");
    drop("task", "two");
  });
  const toMs = clock.now();
  const { missing, parts } = await record(fromMs);
  return { fromMs, toMs, times, missing, parts };
}

async function written(
  t: Parameters<typeof tempDir>[0],
  {
    fromMs,
    missing,
    parts,
    toMs,
  }: { fromMs: number; toMs: number; missing: readonly string[]; parts: readonly RecordingPart[] },
): Promise<string> {
  const feeds = madeFeeds({ processes: 2, actors: 10, steps: 500, fromMs, toMs });
  const all = [headPart({ fromMs, toMs }), ...feedParts(feeds), ...parts];
  const file = join(tempDir(t, "replay"), "incident.mrec");
  writeFileSync(file, await fileOf(sealedParts(all, await createSigner(), missing)));
  return file;
}

browserTest("the view of the cluster shows each moment of a recording, and offers no change", async (t) => {
  const incident = await recordedIncident();
  t.is(incident.times.length, acts);
  const { page, errors } = await openServed(t, ["replay", await written(t, incident)]);
  const [created, running, updated, failed, removed] = incident.times as [number, number, number, number, number];
  const base = page.url().replace(/[?#].*/, "");
  const show = async (atMs: number, route = "#/cluster"): Promise<void> => {
    await page.goto(`${base}${route}?at=${new Date(atMs).toISOString()}`);
    await page.locator(".where", { hasText: "Recording at" }).waitFor();
  };
  const line = (text: string) => page.locator(".events li", { hasText: text }).first().waitFor();

  // Without an address, at the end.
  await page.goto(`${base}#/cluster`);
  await page.locator(".matrix, .middle", { hasText: "beta" }).first().waitFor();
  t.is(await page.locator(".services a", { hasText: "shop" }).count(), 0);

  await show(created - 1);
  await page.locator(".events small", { hasText: "none before this moment" }).waitFor();
  await show(running + 1, "#/cluster/service/shop1");
  await page.locator(".detail h2", { hasText: "shop" }).waitFor();
  await page.locator(".detail .facts dd", { hasText: "2 of 2 running" }).waitFor();
  await page.locator(".detail .note", { hasText: "A recording does not have the output of tasks." }).waitFor();
  await line("running on alpha");
  t.is(await page.locator(".events li").count(), 3, "the service and two tasks");
  await show(updated + 1, "#/cluster/service/shop1");
  await page.locator(".detail .rollout", { hasText: "update in progress" }).waitFor();

  await show(failed + 1, "#/cluster/task/two");
  await page.locator(".detail .facts dd", { hasText: "(not recorded)" }).waitFor();
  await page.locator(".detail .facts dd", { hasText: "10.0.0.2" }).waitFor();
  await line("failed on beta: (not recorded)");
  t.false((await page.content()).includes("hunter2"));
  await show(failed + 1, "#/cluster/network/net1");
  await page.locator(".detail", { hasText: "front" }).waitFor();

  for (const text of ["+ New", "Scale", "Update …", "Remove …", "Roll back …", "Open", "Drain"])
    t.is(await page.getByRole("button", { name: text }).count(), 0, text);

  // The cursor, not only the address, moves the objects.
  await show(removed + 1);
  await line("removed");
  await page.locator(".track").focus();
  await page.keyboard.press("Home");
  await page.locator(".events small", { hasText: "none before this moment" }).waitFor();
  await page.keyboard.press("End");
  await line("removed");
  t.is(await page.locator("[role=alert]").count(), 0);
  await show(failed + 1, "#/cluster/service/shop1");
  await page.locator(".detail .rollout").waitFor();
  t.deepEqual(await seriousFindings(page), []);
  t.deepEqual(errors, []);
  const picture = process.env["MUSTER_PICTURES"];
  if (picture !== undefined) await page.screenshot({ path: join(picture, "replay-cluster.png") });
});

browserTest("a recording without objects, and a moment without them, say so in the view of the cluster", async (t) => {
  const incident = await recordedIncident();
  const old = await openServed(t, ["replay", await written(t, { ...incident, missing: [], parts: [] })]);
  await old.page.goto(`${old.page.url().replace(/[?#].*/, "")}#/cluster`);
  const alert = old.page.locator("[role=alert]");
  await alert.first().waitFor();
  t.is(
    await alert.first().innerText(),
    "Cannot read the cluster at that moment: this recording has no cluster objects: an earlier version of Muster made it",
  );
  t.deepEqual(old.errors, []);

  // The range ends before the time line does.
  const parts = incident.parts.filter(({ transaction }) => transaction?.end !== true);
  const cut = await openServed(t, ["replay", await written(t, { ...incident, parts })]);
  await cut.page.goto(`${cut.page.url().replace(/[?#].*/, "")}#/cluster`);
  await cut.page.locator("[role=alert]", { hasText: "the recording has the cluster's objects from" }).waitFor();
  await cut.page.locator(`.gap[aria-label*="the cluster's objects"]`).waitFor();
  t.deepEqual(cut.errors, []);
});
