// The web interface in a browser, with a made-up feed of 10,000 actors.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { chromium, type Page } from "playwright-core";
import { browserMissing } from "../fixtures/browser.ts";
import { tempDir } from "../fixtures/muster.ts";
import { startUiServer, type UiServer } from "../fixtures/ui-server.ts";

const axe = readFileSync(new URL("../../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const browserTest = browserMissing() === null ? test.serial : test.serial.skip;

async function opened(
  t: ExecutionContext,
  actors: number,
  scheme: "light" | "dark" = "light",
): Promise<{ readonly server: UiServer; readonly page: Page; readonly errors: readonly string[] }> {
  const server = await startUiServer(actors);
  const browser = await chromium.launch({
    executablePath: "/usr/bin/chromium",
    // As root it refuses to start with a sandbox.
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
  t.teardown(async () => {
    await browser.close();
    await server.close();
  });
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, colorScheme: scheme });
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => {
    if (message.text().includes("Content Security Policy")) errors.push(message.text());
  });
  await page.goto(server.address);
  await page.waitForSelector(".row.actor");
  return { server, page, errors };
}

browserTest("10,000 actors are listed, found, and walked through with the keyboard", async (t) => {
  const { page, errors } = await opened(t, 10_000);
  await page.getByText("10,000 actors", { exact: true }).waitFor();
  t.true((await page.locator(".row").count()) < 100, "only visible rows are drawn");
  await page.getByText("overdue").first().waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("session/n9999");
  await page.locator(".row.kind small", { hasText: /^1$/ }).waitFor();
  await page.getByRole("tree").focus();
  for (const key of ["Home", "ArrowDown", "ArrowDown", "Enter"]) await page.keyboard.press(key);
  await page.locator("h2", { hasText: "session/n9999" }).waitFor();
  t.regex(page.url(), /#\/actor\/manager-m1\/session%2Fn9999$/);
  t.deepEqual(errors, []);
});

browserTest("the lit state and the taken transition follow the feed at 1,000 steps a second", async (t) => {
  const { server, page, errors } = await opened(t, 10_000);
  await page.goto(`${server.url}#/actor/manager-m1/session%2Fn1`);
  await page.locator('.state.here[data-state="serving.connected"]').waitFor();
  const stop = server.run(1_000);
  await page.locator('.state.here[data-state="serving.disconnected"]').waitFor();
  await page.locator(".edge.taken", { hasText: "stream.broken" }).waitFor();
  stop();
  server.step(1);
  await page.locator('.state.here[data-state="serving.connected"]').waitFor();
  await page.locator(".steps tbody tr", { hasText: "session.resumed" }).first().waitFor();
  await page.locator(".steps td:nth-child(2) a").first().click();
  await page.locator(".sequence .message").first().waitFor();
  t.deepEqual(errors, []);
});

browserTest("a lost connection is named, made again, and marked; an expired session says what to do", async (t) => {
  const { server, page, errors } = await opened(t, 10);
  server.disconnect();
  await page.locator(".link.lost").waitFor();
  await page.locator(".link.live").waitFor();
  await page.getByText("1 gaps").first().waitFor();
  // The page's cookie is not valid any more, as after a restart of the server.
  await page.context().clearCookies();
  server.disconnect();
  await page.locator(".link.expired", { hasText: "session expired" }).waitFor();
  t.deepEqual(errors, []);
});

for (const scheme of ["light", "dark"] as const)
  browserTest(`nothing serious stands in the way of assistive technology: ${scheme}`, async (t) => {
    const { server, page } = await opened(t, 200, scheme);
    const folder = tempDir(t, "ui");
    for (const hash of ["#/actors", "#/actor/manager-m1/session%2Fn1", "#/sequence/"]) {
      await page.goto(server.url + hash);
      if (hash.startsWith("#/actor/")) await page.locator(".state.here").waitFor();
      server.step(1);
      // The page's policy allows no other script; this one comes from the debugger.
      await page.evaluate(axe);
      const found = await page.evaluate<{ readonly id: string; readonly impact: string; readonly html: string }[]>(
        `axe.run().then(({ violations }) => violations.map(({ id, impact, nodes }) => ({ id, impact, html: nodes[0].html })))`,
      );
      t.deepEqual(
        found.filter(({ impact }) => impact === "serious" || impact === "critical"),
        [],
        hash,
      );
      await page.screenshot({ path: join(folder, `${scheme}-${hash.split("/")[1]}.png`) });
    }
  });
