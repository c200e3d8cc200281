// The web interface in a browser, with a made-up feed of 10,000 actors.
import { join } from "node:path";
import { tempDir } from "../fixtures/muster.ts";
import { browserTest, openPage, seriousFindings } from "../fixtures/ui-page.ts";

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
