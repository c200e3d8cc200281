/** The web interface in Chromium: its first view, frames while steps arrive, and memory. */
import { chromium } from "playwright-core";
import { startUiServer } from "../test/fixtures/ui-server.ts";
import { mebibytes, percentile, seconds, table } from "./table.ts";

const stepsPerSecond = 1_000;

/** In the page: milliseconds between frames for a time, while its tree is scrolled. */
const measureFrames = (ms: number): string => `new Promise((resolve) => {
  const gaps = [];
  const tree = document.querySelector(".tree");
  const end = performance.now() + ${ms};
  let last = performance.now();
  const next = () => {
    const now = performance.now();
    gaps.push(now - last);
    last = now;
    tree.scrollTop += 20;
    if (now < end) requestAnimationFrame(next);
    else resolve(gaps);
  };
  requestAnimationFrame(next);
})`;

async function measured(actors: number, ms: number): Promise<readonly string[]> {
  const server = await startUiServer(actors);
  // As root it refuses to start with a sandbox.
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
  try {
    const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
    const begun = performance.now();
    await page.goto(`${server.address}#/actor/manager-m1/session%2Fn1`);
    await page.waitForSelector(".row.actor");
    const first = performance.now() - begun;
    await page.waitForSelector(".state.here");
    const chart = performance.now() - begun;
    const stop = server.run(stepsPerSecond);
    const gaps = await page.evaluate<number[]>(measureFrames(ms));
    stop();
    const session = await page.context().newCDPSession(page);
    await session.send("HeapProfiler.collectGarbage");
    const { usedSize } = await session.send("Runtime.getHeapUsage");
    const rate = (gaps.length * 1_000) / gaps.reduce((sum, gap) => sum + gap, 0);
    return [
      String(actors),
      seconds(first / 1_000),
      seconds(chart / 1_000),
      rate.toFixed(0),
      `${percentile(gaps, 0.99).toFixed(0)} ms`,
      mebibytes(usedSize / 2 ** 20),
    ];
  } finally {
    await browser.close();
    await server.close();
  }
}

export async function uiTable(short: boolean): Promise<string> {
  const rows: (readonly string[])[] = [];
  for (const actors of short ? [100] : [100, 10_000]) rows.push(await measured(actors, short ? 1_000 : 10_000));
  return table(
    `The web interface, ${stepsPerSecond} steps/s, scrolling`,
    ["actors", "first view", "first chart", "frames/s", "99 % of frames within", "heap"],
    rows,
  );
}
