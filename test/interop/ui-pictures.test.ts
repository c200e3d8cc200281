// Pictures of each view of the web interface, for people to look at: written to test/artefacts, or to the folder that
// MUSTER_TEST_ARTEFACTS names. REWRITE=1 also replaces those of the same name in docs/pictures.
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { ActorFeed, ActorSnapshot, ActorStep, TaskState } from "../../proto/gen/messages.ts";
import { TimelineIndex } from "../../runtime/recording/timeline-index.ts";
import { madeFeeds, stateOf, stepOf } from "../fixtures/feed-history.ts";
import { FakeCluster } from "../fixtures/ui-cluster.ts";
import { browserTest, openPage } from "../fixtures/ui-page.ts";
import { startUiServer, type UiServer } from "../fixtures/ui-server.ts";

const top = fileURLToPath(new URL("../..", import.meta.url));
const folder = resolve(top, process.env["MUSTER_TEST_ARTEFACTS"] ?? "test/artefacts");
const docs = join(top, "docs/pictures");

const schemes = ["light", "dark"] as const;
/** As in docs/pictures. */
const small = { width: 1280, height: 800 };
/** A 4K screen. */
const large = { width: 3840, height: 2160 };

const chart = "#/actor/manager-m1/session%2Fn3";

interface Picture {
  readonly name: string;
  readonly serve: () => Promise<UiServer>;
  /** Opens what is pictured. */
  readonly show: (page: Page, server: UiServer, cluster: FakeCluster) => Promise<unknown>;
}

const cluster = new FakeCluster({ nodes: 4, services: 5, replicas: 6 });
const [firstTask = "", secondTask = ""] = cluster.tasks.keys();
cluster.setTask(firstTask, TaskState.FAILED, {}, "exit code 1");
cluster.setTask(secondTask, TaskState.PENDING, { nodeId: "" });
cluster.rollOut("svc-api", "registry.example/api:1.1");

const live = (): Promise<UiServer> => startUiServer(120, { cluster });

/** Half an hour of three managers; near its end, the sessions of an agent break and resume, and some events are unexpected. */
function recorded(): Promise<UiServer> {
  const index = new TimelineIndex({ bytesMax: 2 ** 28, holdMs: 0, isRecording: true });
  const toMs = Date.now();
  const fromMs = toMs - 1_800_000;
  const process = "node-w1";
  const begins = [
    ActorFeed.create({
      process,
      hostname: "worker-1",
      sequence: 1,
      atMs: fromMs,
      snapshot: ActorSnapshot.create({ begins: true, ends: true, actors: [stateOf("session/n3", 1, fromMs)] }),
    }),
  ];
  const burst = Array.from({ length: 400 }, (_, at) => {
    const atMs = toMs - 400_000 + at * 300;
    const step = ActorStep.patch(stepOf("session/n3", at + 2, atMs), { unexpected: at % 9 === 0 });
    return ActorFeed.create({ process, hostname: "worker-1", sequence: at + 2, atMs, steps: [step] });
  });
  const feeds = [...madeFeeds({ processes: 3, actors: 34, steps: 1_500, fromMs, toMs }), ...begins, ...burst];
  for (const feed of feeds.toSorted((a, b) => a.atMs - b.atMs)) index.append(feed);
  index.settle();
  return startUiServer(0, { recording: index });
}

/** Breaks and resumes sessions, so that each view has something to show. */
async function happen(page: Page, server: UiServer): Promise<void> {
  for (let turn = 0; turn < 6; turn += 1) {
    for (let actor = 2; actor < 12; actor += 1) server.step(actor);
    await page.waitForTimeout(50);
  }
  server.step(3);
}

const pictures: readonly Picture[] = [
  {
    name: "actors",
    serve: live,
    show: async (page, server) => {
      await happen(page, server);
      await page.locator(".row.kind .counts", { hasText: "serving.disconnected" }).waitFor();
    },
  },
  {
    name: "inspector",
    serve: live,
    show: async (page, server) => {
      await page.goto(server.url + chart);
      await page.locator(".state.here").first().waitFor();
      await happen(page, server);
      await page.locator(".edge.taken").first().waitFor();
      await page.locator(".steps tbody tr").nth(6).waitFor();
    },
  },
  {
    name: "sequence",
    serve: live,
    show: async (page, server) => {
      await page.goto(`${server.url}#/sequence/`);
      await happen(page, server);
      await page.goto(`${server.url}#/sequence/${"3".padStart(32, "a")}`);
      await page.locator(".sequence .message").nth(6).waitFor();
      await page.locator(".sequence .message a").nth(3).click();
      await page.locator(".where.past").waitFor();
      await page.goBack();
      await page.keyboard.press("[");
      await page.keyboard.press("[");
      await page.locator(".where.past").waitFor();
      await page.locator(".sequence .message").nth(6).waitFor();
    },
  },
  {
    name: "cluster",
    serve: live,
    show: async (page, server) => {
      await page.goto(`${server.url}#/cluster/service/svc-web`);
      await page.locator(".cell").nth(20).waitFor();
      await page.getByLabel("Replicas").fill("9");
      await page.getByRole("button", { name: "Scale …" }).click();
      await page.getByText("3 new, 0 replaced, 0 removed, 6 unchanged").waitFor();
    },
  },
  {
    name: "terminal",
    serve: live,
    show: async (page, server) => {
      const running = [...cluster.tasks.keys()].at(-1) ?? "";
      await page.goto(`${server.url}#/cluster/task/${running}`);
      await page.getByRole("button", { name: "Open", exact: true }).click();
      await page.locator(".xterm-rows", { hasText: "made-up shell" }).waitFor();
      await page.keyboard.type("echo hello\r");
      await page.locator(".xterm-rows", { hasText: "hello" }).waitFor();
    },
  },
  {
    name: "time-line",
    serve: recorded,
    show: async (page, server) => {
      await page.goto(`${server.url}#/actor/node-w1/session%2Fn3`);
      await page.locator(".where.past").waitFor();
      await page.keyboard.press("{");
      await page.locator(".state.here").first().waitFor();
      await page.locator(".steps tbody tr").nth(6).waitFor();
    },
  },
];

/** Elements that reach beyond the page, and texts that are cut without a way to read them. */
const misfits = `[
  ...(document.documentElement.scrollWidth > innerWidth ? ["the page is wider than the window"] : []),
  ...[...document.querySelectorAll("button, h1, h2, h3, nav a")]
    .filter((each) => each.checkVisibility() && each.getBoundingClientRect().right > innerWidth + 1)
    .map((each) => "beyond the right edge: " + each.outerHTML.slice(0, 120)),
  ...[...document.querySelectorAll("button")]
    .filter((each) => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1)
    .map((each) => "too narrow for its text: " + each.outerHTML.slice(0, 120)),
]`;

/** Number of the chart's states that are not wholly in view. */
const statesOutside = `(() => {
  const box = document.querySelector(".drawing svg").getBoundingClientRect();
  return [...document.querySelectorAll(".drawing .state rect")].filter((each) => {
    const { left, right, top, bottom } = each.getBoundingClientRect();
    return left < box.left || right > box.right || top < box.top || bottom > box.bottom;
  }).length;
})()`;

mkdirSync(folder, { recursive: true });
for (const { name, serve, show } of pictures)
  for (const scheme of schemes)
    browserTest(`a picture of ${name} is taken, in which everything fits: ${scheme}`, async (t) => {
      const { server, page, errors } = await openPage(t, serve(), { scheme });
      await show(page, server, cluster);
      for (const size of [small, large]) {
        await page.setViewportSize(size);
        // Charts and bars are laid out again after the window has changed.
        await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
        t.deepEqual(await page.evaluate<readonly string[]>(misfits), [], `${size.width} pixels wide`);
        if (name === "inspector" && size === large) t.is(await page.evaluate<number>(statesOutside), 0, "all has room");
        const image = await page.screenshot();
        writeFileSync(join(folder, `${name}-${scheme}-${size.width}.png`), image);
        const shown = join(docs, `${name}-${scheme}.png`);
        if (process.env["REWRITE"] === "1" && size === small && existsSync(shown)) writeFileSync(shown, image);
      }
      t.deepEqual(errors, []);
    });
