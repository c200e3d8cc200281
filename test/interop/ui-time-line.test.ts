// The time line of the web interface in a browser: the past of a made-up feed, served from a real index.
import type { Page } from "playwright-core";
import {
  ActorFeed,
  ActorSnapshot,
  ActorState,
  ActorStep,
  TimelineService,
  UiRequest,
} from "../../proto/gen/messages.ts";
import { TimelineIndex } from "../../runtime/recording/timeline-index.ts";
import { browserTest, openPage, seriousFindings } from "../fixtures/ui-page.ts";
import { patient } from "../support/slowness.ts";
import { fedProcess, startUiServer, type UiServer } from "../fixtures/ui-server.ts";

const chart = "#/actor/manager-m1/session%2Fn1";
const [connected, broken] = ["serving.connected", "serving.disconnected"];
const lit = (state: string): string => `.state.here[data-state="${state}"]`;

/** Session 1 breaks and resumes `times` times, and session 2 does after each; some milliseconds apart. */
async function happen(server: UiServer, page: Page, times: number): Promise<void> {
  for (let time = 0; time < times; time += 1)
    for (const actor of [1, 2]) {
      server.step(actor);
      await page.waitForTimeout(20);
    }
}

async function until(page: Page, condition: () => Promise<boolean>): Promise<void> {
  const end = Date.now() + patient(10_000);
  while (!(await condition())) {
    if (Date.now() > end) throw new Error("the condition did not come true");
    await page.waitForTimeout(20);
  }
}

const where = (page: Page): Promise<string> => page.locator(".time-line [role=status]").innerText();

/** Presses the pointer at one share of the time line's width, and releases it at another. */
async function drag(page: Page, from: number, to: number): Promise<void> {
  const { x, y, width } = (await page.locator(".track").boundingBox()) ?? { x: 0, y: 0, width: 0 };
  await page.mouse.move(x + from * width, y + 20);
  await page.mouse.down();
  for (let share = 0.1; share <= 1; share += 0.1)
    await page.mouse.move(x + (from + share * (to - from)) * width, y + 20);
  await page.mouse.move(x + to * width, y + 20);
  await page.mouse.up();
}

browserTest(
  "dragging back shows the tree, the chart and its events as they were; the live feed moves nothing",
  async (t) => {
    const { server, page, errors } = await openPage(t, 10, { hash: chart });
    await page.waitForTimeout(300);
    await happen(server, page, 1);
    await page.locator(lit(broken)).waitFor();
    await page.locator(".where", { hasText: "Live" }).waitFor();
    await page.locator(".track[aria-disabled=false]").waitFor();
    await drag(page, 0.9, 0);
    await page.locator(lit(connected)).waitFor();
    t.regex(await where(page), /^Past: 20/);
    await page.locator("header .link.past", { hasText: "past" }).waitFor();
    await page.locator("aside", { hasText: "None is known." }).waitFor();
    await page.locator(".timers li", { hasText: "graceMs" }).waitFor();
    await page.locator(".row.stuck").waitFor();
    await page.locator(".row.kind .counts", { hasText: /^serving.connected 10$/ }).waitFor();
    t.regex(page.url(), /\?at=20/);
    await happen(server, page, 4);
    t.true(await page.locator(lit(connected)).isVisible());
    await page.getByRole("button", { name: "Back to live" }).click();
    await page.locator(lit(broken)).waitFor();
    await page.locator(".row.kind .counts", { hasText: "serving.disconnected 2" }).waitFor();
    await page.locator(".steps tbody tr").nth(4).waitFor();
    t.false(page.url().includes("?at="));
    t.deepEqual(errors, []);
  },
);

browserTest("an address with a moment is loaded once, and moves nothing else", async (t) => {
  const { server, page, errors } = await openPage(t, 10, { hash: chart });
  await happen(server, page, 3);
  await page.locator(".steps tbody tr").nth(2).waitFor();
  await page.locator(".track[aria-disabled=false]").waitFor();
  await page.keyboard.press("[");
  await page.locator(".where.past").waitFor();
  // The connection that is open already sends no more; a new one is heard from its first call on.
  const methods: string[] = [];
  page.on("websocket", (socket) =>
    socket.on("framesent", ({ payload }) => methods.push(UiRequest.decode(payload as Buffer).method)),
  );
  await page.reload();
  await page.locator(".where.past").waitFor();
  const { At, Steps } = TimelineService.methods;
  const loads = (): readonly string[] => methods.filter((method) => method === At.path || method === Steps.path);
  methods.length = 0;
  await page.keyboard.press("[");
  await page.locator(".after", { hasText: "of session/n2" }).waitFor();
  // One more by the keys, to find the event that is the next.
  t.deepEqual(loads().toSorted(), [At.path, Steps.path, Steps.path, Steps.path], "by a key");
  methods.length = 0;
  await page.locator(".steps td:first-child a").last().click();
  await page.locator(".after", { hasText: "after stream.broken of session/n1" }).waitFor();
  t.deepEqual(loads().toSorted(), [At.path, Steps.path, Steps.path], "by a link");
  t.deepEqual(errors, []);
});

browserTest("keys go by events, of all actors or of the chosen one, and the address can be shared", async (t) => {
  const { server, page, errors } = await openPage(t, 10, { hash: chart });
  await happen(server, page, 3);
  await page.locator(".steps tbody tr").nth(2).waitFor();
  await page.locator(".track[aria-disabled=false]").waitFor();
  const after = (text: string) => page.locator(".after", { hasText: text }).waitFor();
  // The last of six events is session 2's, so before it is session 1's last.
  await page.keyboard.press("[");
  await after("after stream.broken of session/n1");
  await page.locator(`.edge.taken`, { hasText: "stream.broken" }).waitFor();
  await page.keyboard.press("{");
  await after("after session.resumed of session/n1");
  await page.locator(lit(connected)).waitFor();
  await page.keyboard.press("]");
  await after("after session.resumed of session/n2");
  await page.keyboard.press("}");
  await after("after stream.broken of session/n1");
  t.regex(page.url(), /&step=5$/);
  for (const _ of [1, 2, 3, 4]) await page.keyboard.press("[");
  await page.waitForURL(/&step=1$/);
  await page.keyboard.press("[");
  await page.locator(".note", { hasText: "No earlier event is known." }).waitFor();
  await page.locator(".steps tbody tr").first().waitFor();
  const shared = page.url();
  const other = await page.context().newPage();
  await other.goto(shared);
  await other.locator(lit(broken)).waitFor();
  await other.locator(".after", { hasText: "after stream.broken of session/n1" }).waitFor();
  t.is(await other.locator(".steps tbody tr").count(), 1);
  t.is(other.url(), shared);
  await other.locator(".steps td:nth-child(2) a").click();
  await other.locator(".message").nth(2).waitFor();
  t.is(await other.locator(".message.later").count(), 2, "two of the trace came later");
  t.deepEqual(errors, []);
});

browserTest("a key pressed right after an event goes to the one before it, not further back", async (t) => {
  const { server, page, errors } = await openPage(t, startUiServer(10, { isLive: true }), { hash: chart });
  await happen(server, page, 1);
  await page.locator(".track[aria-disabled=false]").waitFor();
  await page.locator(".steps tbody tr").waitFor();
  server.step(1);
  await page.locator(".steps tbody tr").nth(1).waitFor();
  server.step(1);
  await page.locator(".steps tbody tr").nth(2).waitFor();
  await page.keyboard.press("{");
  await page.waitForURL(/&step=3$/);
  await page.locator(".after", { hasText: "after session.resumed of session/n1" }).waitFor();
  t.deepEqual(errors, []);
});

browserTest("an address with a moment that is not known, or cannot be read, says so", async (t) => {
  const { server, page, errors } = await openPage(t, 10, { hash: "#/actors?at=2020-01-01T00:00:00Z" });
  const note = (text: string) => page.locator(".note", { hasText: text }).waitFor();
  await note("2020-01-01");
  await note("is before everything that is known; the nearest moment is shown.");
  t.regex(await where(page), /^Past: 20/);
  t.false(page.url().includes("2020-01-01"));
  await page.goto(`${server.url}#/actors?at=3020-01-01T00:00:00Z`);
  await note("is after everything that is known; the nearest moment is shown.");
  await page.goto(`${server.url}#/actors?at=yesterday`);
  await note("cannot be read");
  await page.locator(".where", { hasText: "Live" }).waitFor();
  await happen(server, page, 1);
  await page.goto(`${server.url}${chart}?at=${Date.now() - 1}&step=77`);
  await note("The event that the address names is not known here; its time is shown.");
  t.deepEqual(errors, []);
});

browserTest("a lost connection is a gap in the time line, and the past stays while it is made again", async (t) => {
  const { server, page, errors } = await openPage(t, 10, { hash: chart });
  await happen(server, page, 2);
  await page.locator(".track[aria-disabled=false]").waitFor();
  await page.keyboard.press("[");
  await page.locator(".after").waitFor();
  const before = await page.locator(".time-line time").innerText();
  server.disconnect();
  await page.locator(".link.lost").waitFor();
  t.is(await page.locator(".time-line time").innerText(), before);
  await page.locator(".link.past").waitFor();
  await page.locator('.gap[aria-label*="this page was not connected"]').waitFor();
  await page.keyboard.press("[");
  await page.locator(".after", { hasText: "session/n2" }).waitFor();
  t.deepEqual(errors, []);
});

function recording(): TimelineIndex {
  const index = new TimelineIndex({ bytesMax: 2 ** 26, holdMs: 0, isRecording: true });
  const from = Date.UTC(2026, 10, 25, 14);
  const states = ["session/n1", "session/n2"].map((actor) =>
    ActorState.create({ actor, machine: "session", states: [connected], steps: 1, startedAtMs: from }),
  );
  const feed = (sequence: number, atMs: number, fields: Partial<ActorFeed>) =>
    index.append(ActorFeed.create({ process: fedProcess, sequence, atMs, ...fields }));
  feed(1, from, { snapshot: ActorSnapshot.create({ begins: true, ends: true, actors: states }) });
  for (let number = 2; number <= 5; number += 1) {
    const atMs = from + number * 60_000;
    const step = { actor: "session/n1", machine: "session", number, atMs, event: "stream.broken", states: [broken] };
    feed(number, atMs, { steps: [ActorStep.create({ ...step, unexpected: number === 3 })] });
  }
  index.settle();
  return index;
}

browserTest("a recording starts at its end, says what it is, and has no live edge", async (t) => {
  const { page, errors } = await openPage(t, startUiServer(0, { recording: recording() }), { hash: chart });
  await page.locator("header .link", { hasText: "recording of test" }).waitFor();
  await page.locator(".where", { hasText: "Recording at" }).waitFor();
  await page.locator(lit(broken)).waitFor();
  t.is(await page.getByRole("button", { name: "Back to live" }).count(), 0);
  t.is(await page.locator(".track .edge").count(), 0);
  await page.keyboard.press("t");
  await page.keyboard.press("Home");
  await page.locator(lit(connected)).waitFor();
  await page.getByRole("button", { name: "To the end" }).click();
  await page.locator(lit(broken)).waitFor();
  t.deepEqual(errors, []);
});

browserTest("the time line is used with the keyboard alone", async (t) => {
  const { server, page, errors } = await openPage(t, 10, { hash: chart });
  await happen(server, page, 5);
  await page.locator(".track[aria-disabled=false]").waitFor();
  const slider = page.getByRole("slider");
  const value = async (): Promise<number> => Number(await slider.getAttribute("aria-valuenow"));
  await page.keyboard.press("t");
  await page.locator("[role=slider]:focus").waitFor();
  t.is(await slider.getAttribute("aria-valuetext"), "live");
  await page.keyboard.press("PageUp");
  await page.locator(".where.past").waitFor();
  const first = await value();
  await page.keyboard.press("ArrowLeft");
  await until(page, async () => (await value()) < first);
  await page.keyboard.press("Home");
  await until(page, async () => (await slider.getAttribute("aria-valuemin")) === `${await value()}`);
  await page.keyboard.press("End");
  await page.locator(".where", { hasText: "Live" }).waitFor();
  for (const _ of [1, 2, 3]) await page.keyboard.press("PageUp");
  await page.locator(".cursor:not(.live)").waitFor();
  const place = (): Promise<number> =>
    page.evaluate<number>(`Number.parseFloat(document.querySelector(".cursor").style.left)`);
  for (const _ of [1, 2, 3]) await page.keyboard.press("+");
  // From now on, the live edge moves nothing: a part is in view, which can be moved.
  await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
  const zoomed = await place();
  await page.keyboard.press("Shift+ArrowLeft");
  await until(page, async () => (await place()) > zoomed + 5);
  await page.keyboard.press("0");
  await page.keyboard.press("End");
  await page.locator(".cursor.live").waitFor();
  // Where a text is typed, keys are text.
  await page.getByRole("searchbox").focus();
  await page.keyboard.type("[t");
  t.is(await page.getByRole("searchbox").inputValue(), "[t");
  await page.locator(".where", { hasText: "Live" }).waitFor();
  t.deepEqual(errors, []);
});

for (const scheme of ["light", "dark"] as const)
  browserTest(`nothing serious stands in the way of assistive technology in the past: ${scheme}`, async (t) => {
    const { server, page } = await openPage(t, 20, { scheme, hash: chart });
    await happen(server, page, 3);
    server.disconnect();
    await page.locator('.gap[aria-label*="this page was not connected"]').waitFor();
    for (const press of ["[", "{"]) {
      await page.keyboard.press(press);
      await page.locator(".where.past").waitFor();
      t.deepEqual(await seriousFindings(page), []);
    }
    await page.locator(".steps td:nth-child(2) a").first().click();
    await page.locator(".message.later").first().waitFor();
    t.deepEqual(await seriousFindings(page), []);
  });
