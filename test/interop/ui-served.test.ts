// The web interface in a browser, served by real processes: `muster ui`, and a manager whose users log in.
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { chromium, type BrowserContext } from "playwright-core";
import { browserMissing } from "../fixtures/browser.ts";
import { MusterProcess, startManager, tempDir } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const browserTest = browserMissing() === null ? test.serial : test.serial.skip;

test.beforeEach((t) => t.timeout(patient(120_000)));

async function startBrowser(
  t: ExecutionContext,
): Promise<{ readonly context: BrowserContext; readonly errors: string[] }> {
  const browser = await chromium.launch({
    executablePath: "/usr/bin/chromium",
    // As root it refuses to start with a sandbox.
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
  t.teardown(() => browser.close());
  // The root of the test's cluster is trusted by nobody.
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1280, height: 800 } });
  const errors: string[] = [];
  context.on("weberror", (error) => errors.push(String(error.error())));
  context.on("console", (message) => {
    if (message.text().includes("Content Security Policy")) errors.push(message.text());
  });
  return { context, errors };
}

browserTest(
  "the address of muster ui shows the actors of the cluster, keeps the named view, and works once",
  async (t) => {
    const manager = await startManager(t);
    const process = new MusterProcess(tempDir(t, "ui"), [
      "ui",
      "--host",
      `unix://${join(manager.dataDir, "control.sock")}`,
    ]);
    t.teardown(() => process.end());
    await until("the printed address", () => process.output.includes("Ctrl-C"));
    const address = /http:\S+/.exec(process.output)?.[0] ?? "";
    const { context, errors } = await startBrowser(t);
    const page = await context.newPage();
    await page.goto(`${address}#/actors`);
    await page.locator(".link.live").waitFor();
    await page.locator(".row.kind", { hasText: "ledger" }).first().waitFor();
    t.regex(page.url(), /^http:\/\/muster-[0-9a-f]{32}\.localhost:\d+\/#\/actors$/, "without the token");
    await page.reload();
    await page.locator(".link.live").waitFor();

    const other = await (await startBrowser(t)).context.newPage();
    await other.goto(address);
    await other.getByText("has been used: run 'muster ui' again").waitFor();

    // Another user's server on this machine, which the same browser visits: it gets no cookie, cannot show the page in a frame,
    // and cannot use its WebSocket.
    const foreign = await context.newPage();
    const origin = new URL(address).origin;
    const cookies: (string | undefined)[] = [];
    const evil = createServer(({ headers }, response) => {
      cookies.push(headers.cookie);
      response.writeHead(200, { "content-type": "text/html" }).end(`<iframe src="${origin}/"></iframe>`);
    });
    t.teardown(() => evil.close());
    await new Promise<void>((resolve) => evil.listen(0, "127.0.0.1", resolve));
    const framed = foreign.waitForResponse(`${origin}/`);
    await foreign.goto(`http://127.0.0.1:${(evil.address() as AddressInfo).port}/`);
    t.is((await framed).status(), 403);
    t.is((await context.cookies(origin)).length, 1);
    t.true(cookies.length > 0);
    t.deepEqual(
      cookies.filter((cookie) => cookie !== undefined),
      [],
    );
    const opened = await foreign.evaluate<string>(
      `new Promise((resolve) => {
      const socket = new WebSocket("${origin.replace("http", "ws")}/ws");
      socket.onopen = () => resolve("open");
      socket.onerror = () => resolve("refused");
    })`,
    );
    t.is(opened, "refused");
    t.deepEqual(
      errors.filter((error) => !error.includes("frame-ancestors")),
      [],
    );

    await manager.process.end();
    await page
      .locator(".link.lost", { hasText: /connection to the manager has ended|cannot connect to the manager/ })
      .waitFor();
    await startManager(t, { dataDir: manager.dataDir, port: manager.port });
    await page.locator(".link.live").waitFor();
  },
);

browserTest("a user logs in at a manager, sees the page with the role's rights, and logs out", async (t) => {
  const port = await freePort();
  const manager = await startManager(t, { args: ["--ui-listen", `127.0.0.1:${port}`] });
  const password = join(tempDir(t, "password"), "reader");
  writeFileSync(password, "reader-password", { mode: 0o600 });
  await manager.muster("user", "add", "--role", "read-only", "--password-file", password, "reader");
  const { context, errors } = await startBrowser(t);
  const page = await context.newPage();
  const base = `https://127.0.0.1:${port}/`;
  await page.goto(`${base}#/actors`);
  await page.getByLabel("User").fill("reader");
  await page.getByLabel("Password").fill("wrong");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("alert").getByText("The user name or the password is wrong").waitFor();
  await page.screenshot({ path: join(tempDir(t, "shots"), "login.png") });
  await page.getByLabel("User").fill("reader");
  await page.getByLabel("Password").fill("reader-password");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.locator(".link.live").waitFor();
  await page.locator(".row.kind", { hasText: "ledger" }).first().waitFor();
  t.is(page.url(), `${base}#/actors`, "the view that the address named");
  await page.locator(".who", { hasText: "reader · read-only" }).waitFor();

  // A link on another site, which sends no SameSite cookie at first.
  const linked = await context.newPage();
  await linked.route("http://other.example/**", (route) =>
    route.fulfill({ contentType: "text/html", body: `<a href="${base}#/sequence/">Look</a>` }),
  );
  await linked.goto("http://other.example/");
  await linked.getByText("Look").click();
  await linked.locator(".link.live").waitFor();
  t.is(linked.url(), `${base}#/sequence/`);
  await linked.close();

  await manager.muster("user", "grant", "reader", "operator");
  await page.locator(".who", { hasText: "reader · operator" }).waitFor();
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByText("Log in with a user of this cluster.").waitFor();
  await page.getByLabel("User").fill("reader");
  await page.getByLabel("Password").fill("reader-password");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.locator(".link.live").waitFor();
  await manager.muster("user", "disable", "reader");
  await page.locator(".link.expired").waitFor();
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByLabel("User").waitFor();
  t.deepEqual(errors, []);
});
