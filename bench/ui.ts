/** The web interface in Chromium: its first view, frames while steps arrive and while the time line is dragged, and memory. */
import { chromium, type Page } from "playwright-core";
import { TimelineIndex } from "../runtime/recording/timeline-index.ts";
import { madeFeeds } from "../test/fixtures/feed-history.ts";
import { startUiServer, type UiServer } from "../test/fixtures/ui-server.ts";
import { mebibytes, percentile, seconds, table } from "./table.ts";

const stepsPerSecond = 1_000;
const chart = "#/actor/manager-m1/session%2Fn1";
/** Seeks to places all over a recording. */
const seeks = 50;
/** Memory for the index of a recording; a million steps take some 300 MiB. */
const bytesMax = 2 ** 31;

/** In the page: milliseconds between frames for a time. `each`: a statement for each frame. */
const measureFrames = (ms: number, each: string): string => `new Promise((resolve) => {
  const gaps = [];
  const tree = document.querySelector(".tree");
  const end = performance.now() + ${ms};
  let last = performance.now();
  const next = () => {
    const now = performance.now();
    gaps.push(now - last);
    last = now;
    ${each}
    if (now < end) requestAnimationFrame(next);
    else resolve(gaps);
  };
  requestAnimationFrame(next);
})`;

/** In the page: milliseconds until each of some moments is shown, with the frame that draws it. */
const measureSeeks = (moments: readonly number[]): string => `(async () => {
  const shown = (text) => new Promise((resolve) => {
    const isShown = () => document.querySelector(".time-line time")?.textContent.endsWith(text);
    const watch = new MutationObserver(() => {
      if (!isShown()) return;
      watch.disconnect();
      requestAnimationFrame(resolve);
    });
    watch.observe(document.querySelector(".time-line"), { subtree: true, childList: true, characterData: true });
  });
  const taken = [];
  for (const at of ${JSON.stringify(moments)}) {
    const wanted = new Date(at).toTimeString().slice(0, 8) + "." + String(at % 1000).padStart(3, "0");
    const begun = performance.now();
    const done = shown(wanted);
    location.hash = location.hash.split("?")[0] + "?at=" + new Date(at).toISOString();
    await done;
    taken.push(performance.now() - begun);
  }
  return taken;
})()`;

/** Drags the cursor of the time line back and forth, as fast as the browser takes it. */
async function drag(page: Page, ms: number): Promise<void> {
  const box = await page.locator(".track").boundingBox();
  if (box === null) throw new Error("the page has no time line");
  const end = performance.now() + ms;
  await page.mouse.move(box.x + box.width / 2, box.y + 20);
  await page.mouse.down();
  for (let turn = 0; performance.now() < end; turn += 1)
    await page.mouse.move(box.x + box.width * (0.5 + 0.4 * Math.sin(turn / 40)), box.y + 20);
  await page.mouse.up();
}

async function heapOf(page: Page): Promise<string> {
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  return mebibytes(usedSize / 2 ** 20);
}

const rateOf = (gaps: readonly number[]): string =>
  ((gaps.length * 1_000) / gaps.reduce((sum, gap) => sum + gap, 0)).toFixed(0);
const worstOf = (gaps: readonly number[]): string => `${percentile(gaps, 0.99).toFixed(0)} ms`;

async function inBrowser<Result>(server: UiServer, use: (page: Page) => Promise<Result>): Promise<Result> {
  // As root it refuses to start with a sandbox.
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
  try {
    return await use(await browser.newPage({ viewport: { width: 1280, height: 800 } }));
  } finally {
    await browser.close();
    await server.close();
  }
}

async function measured(actors: number, ms: number): Promise<readonly string[]> {
  const server = await startUiServer(actors);
  return inBrowser(server, async (page) => {
    const begun = performance.now();
    await page.goto(`${server.address}${chart}`);
    await page.waitForSelector(".row.actor");
    const first = performance.now() - begun;
    await page.waitForSelector(".state.here");
    const drawn = performance.now() - begun;
    const stop = server.run(stepsPerSecond);
    const scrolled = await page.evaluate<number[]>(measureFrames(ms, "tree.scrollTop += 20;"));
    await page.locator(".track[aria-disabled=false]").waitFor();
    const [dragged] = await Promise.all([page.evaluate<number[]>(measureFrames(ms, "")), drag(page, ms)]);
    stop();
    return [
      String(actors),
      seconds(first / 1_000),
      seconds(drawn / 1_000),
      rateOf(scrolled),
      worstOf(scrolled),
      rateOf(dragged),
      worstOf(dragged),
      await heapOf(page),
    ];
  });
}

async function recorded(steps: number, ms: number): Promise<readonly string[]> {
  const index = new TimelineIndex({ bytesMax, holdMs: 0, isRecording: true });
  const toMs = Date.now();
  const fromMs = toMs - 3_600_000;
  for (const feed of madeFeeds({ processes: 3, actors: 1_000, steps, fromMs, toMs })) index.append(feed);
  index.settle();
  const server = await startUiServer(0, { recording: index });
  return inBrowser(server, async (page) => {
    const begun = performance.now();
    await page.goto(`${server.address}${chart}`);
    await page.waitForSelector(".where.past");
    const first = performance.now() - begun;
    const moments = Array.from({ length: seeks }, (_, at) =>
      Math.round(fromMs + ((toMs - fromMs) * (((at * 37) % seeks) + 0.5)) / seeks),
    );
    const session = await page.context().newCDPSession(page);
    await session.send("Performance.enable", { timeDomain: "threadTicks" });
    const busy = async (): Promise<number> => {
      const { metrics } = await session.send("Performance.getMetrics");
      return (metrics.find(({ name }) => name === "TaskDuration")?.value ?? 0) * 1_000;
    };
    const busyBefore = await busy();
    const serverBefore = process.cpuUsage();
    const taken = await page.evaluate<number[]>(measureSeeks(moments));
    const used = process.cpuUsage(serverBefore);
    const pageMs = ((await busy()) - busyBefore) / seeks;
    const serverMs = (used.user + used.system) / 1_000 / seeks;
    const [dragged] = await Promise.all([page.evaluate<number[]>(measureFrames(ms, "")), drag(page, ms)]);
    return [
      steps.toLocaleString("en"),
      seconds(first / 1_000),
      `${percentile(taken, 0.5).toFixed(0)} ms`,
      `${percentile(taken, 0.99).toFixed(0)} ms`,
      `${pageMs.toFixed(0)} ms + ${serverMs.toFixed(0)} ms`,
      rateOf(dragged),
      worstOf(dragged),
      await heapOf(page),
    ];
  });
}

export async function uiTable(short: boolean): Promise<string> {
  const ms = short ? 1_000 : 10_000;
  const rows: (readonly string[])[] = [];
  for (const actors of short ? [100] : [100, 10_000]) rows.push(await measured(actors, ms));
  const recordings = [await recorded(short ? 10_000 : 1_000_000, ms)];
  return (
    table(
      `The web interface, ${stepsPerSecond} steps/s`,
      [
        "actors",
        "first view",
        "first chart",
        "frames/s, scrolling",
        "99 % within",
        "frames/s, dragging",
        "99 % within",
        "heap",
      ],
      rows,
    ) +
    table(
      "The web interface with a recording of an hour, 3,000 actors",
      [
        "steps",
        "first view",
        "seek, median",
        "seek, 99 %",
        "CPU of a seek, page + server",
        "frames/s, dragging",
        "99 % within",
        "heap",
      ],
      recordings,
    )
  );
}
