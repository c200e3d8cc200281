// The page of a rehearsal in a browser, as it is opened from a file: its own policy lets it draw, and load nothing.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { chromium } from "playwright-core";
import { comparisonPage, reportPage } from "../../cli/simulate/html.ts";
import { browserMissing } from "../fixtures/browser.ts";
import { tempDir } from "../fixtures/muster.ts";
import { drawnOutcome } from "../fixtures/rehearsal.ts";
import { patient } from "../support/slowness.ts";

const browserTest = browserMissing() === null ? test.serial : test.serial.skip;

browserTest(
  "the pages of a report and a comparison draw every plot, in light and dark, and load nothing",
  async (t) => {
    t.timeout(patient(120_000));
    const folder = tempDir(t, "page");
    const outcome = drawnOutcome({ seeds: 5, violated: [2] });
    const browser = await chromium.launch({
      executablePath: "/usr/bin/chromium",
      // As root it refuses to start with a sandbox.
      args: ["--no-sandbox", "--disable-dev-shm-usage"],
    });
    t.teardown(() => browser.close());
    const pages = { report: reportPage(outcome, () => "muster"), comparison: comparisonPage(outcome, outcome) };
    for (const [name, text] of Object.entries(pages)) {
      for (const colorScheme of ["light", "dark"] as const) {
        const path = join(folder, `${name}.html`);
        writeFileSync(path, text);
        const page = await browser.newPage({ colorScheme });
        const [errors, requests]: [string[], string[]] = [[], []];
        page.on("console", (message) => errors.push(message.text()));
        page.on("pageerror", (error) => errors.push(error.message));
        page.on("request", (request) => requests.push(request.url()));
        await page.goto(`file://${path}`);
        await page.locator(".plot .u-over").nth(2).waitFor();
        t.is(await page.locator(".plot canvas").count(), 3, "two services and the placement");
        const ground = await page.evaluate("getComputedStyle(document.body).backgroundColor");
        t.is(ground, colorScheme === "light" ? "rgb(255, 255, 255)" : "rgb(20, 23, 28)");
        t.deepEqual(errors, []);
        t.deepEqual(requests, [`file://${path}`]);
        await page.close();
      }
    }
  },
);
