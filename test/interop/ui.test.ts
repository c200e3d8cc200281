// The web interface in a browser, with a made-up feed of 10,000 actors.
import { join } from "node:path";
import { tempDir } from "../fixtures/muster.ts";
import { browserTest, openPage, seriousFindings } from "../fixtures/ui-page.ts";
import { until } from "../fixtures/until.ts";

browserTest("10,000 actors are listed, found, and walked through with the keyboard", async (t) => {
  const { page, errors } = await openPage(t, 10_000);
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
  const { server, page, errors } = await openPage(t, 10_000);
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

browserTest(
  "a chart moves the taken transition, counts timers down, and describes the state under the pointer",
  async (t) => {
    const { server, page, errors } = await openPage(t, 10);
    await page.goto(`${server.url}#/actor/manager-m1/session%2Fn1`);
    await page.locator(".timers li", { hasText: "graceMs" }).waitFor();
    // Both at one moment: a busy machine may let a second pass between two readings.
    const timer = async (): Promise<{ readonly leftS: number; readonly elapsedMs: number }> => {
      const [words, elapsedMs] = await page.evaluate<[string, number]>(
        `[[...document.querySelectorAll(".timers li span")].at(-1).innerText, document.querySelector(".timers progress").value]`,
      );
      return { leftS: Number(/^in ([\d.]+) s$/.exec(words)?.[1]), elapsedMs };
    };
    const first = await timer();
    t.true(first.leftS > 0 && first.leftS <= 30, "the timer was armed for 30 s");
    let later = first;
    await until("a second less", async () => (later = await timer()).leftS <= first.leftS - 1);
    t.true(later.elapsedMs >= first.elapsedMs + 900, `${later.elapsedMs - first.elapsedMs} ms`);

    const described = page.locator(".details h3");
    t.is(await described.innerText(), "serving.connected", "the active state, while the pointer is elsewhere");
    await page.locator('.state[data-state="serving.disconnected"]').hover();
    await page.locator(".details h3", { hasText: "serving.disconnected" }).waitFor();
    await page.locator(".details", { hasText: "Waiting for the agent to come back" }).waitFor();
    await page.locator(".timers").hover();
    await page.locator(".details h3", { hasText: "serving.connected" }).waitFor();

    await page.locator('.state[data-state="serving.disconnected"]').click();
    await page.locator(".timers").hover();
    await page.locator(".details h3", { hasText: "serving.disconnected" }).waitFor();

    server.step(1);
    await page.locator(".edge.taken", { hasText: "stream.broken" }).waitFor();
    await page.getByText("None armed.").waitFor();
    const motion = (): Promise<string> =>
      page.evaluate("getComputedStyle(document.querySelector('.edge.taken path')).animationName");
    t.is(await motion(), "taken");
    await page.emulateMedia({ reducedMotion: "reduce" });
    t.is(await motion(), "none");
    t.deepEqual(errors, []);
  },
);

browserTest("the newest 100 events are listed, and lead to their trace and their moment", async (t) => {
  const { server, page, errors } = await openPage(t, 10);
  await page.goto(`${server.url}#/actor/manager-m1/session%2Fn2`);
  await page.locator(".state.here").waitFor();
  for (let step = 0; step < 121; step += 1) server.step(2);
  await page.locator(".now", { hasText: "122 events" }).waitFor();
  const rows = page.locator(".steps tbody tr");
  await rows.nth(99).waitFor();
  t.is(await rows.count(), 100);
  t.regex(await rows.first().innerText(), /stream\.broken\s*→ serving\.disconnected/, "the newest is on top");
  await rows.first().locator("td:nth-child(2) a").click();
  await page.waitForURL(`${server.url}#/sequence/${"2".padStart(32, "a")}`);
  await page.locator(".sequence .message", { hasText: "stream.broken" }).first().waitFor();
  await page.goBack();
  await rows.last().locator("td:first-child a").click();
  await page.waitForURL(/#\/actor\/manager-m1\/session%2Fn2\?at=20/);
  t.deepEqual(errors, []);
});

browserTest("a lost connection is named, made again, and marked; an expired session says what to do", async (t) => {
  const { server, page, errors } = await openPage(t, 10);
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
    const { server, page } = await openPage(t, 200, { scheme });
    const folder = tempDir(t, "ui");
    for (const hash of ["#/actors", "#/actor/manager-m1/session%2Fn1", "#/sequence/"]) {
      await page.goto(server.url + hash);
      if (hash.startsWith("#/actor/")) await page.locator(".state.here").waitFor();
      server.step(1);
      t.deepEqual(await seriousFindings(page), [], hash);
      await page.screenshot({ path: join(folder, `${scheme}-${hash.split("/")[1]}.png`) });
    }
  });
