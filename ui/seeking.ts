/**
 * The moment that is shown: moving the cursor of the time line, and loading the picture of where it is. The page holds the
 * present, the moment shown and a page of steps up to it, never the whole past.
 *
 * U5: the picture shows one moment: actors, events and traces of a seek appear together when all have come.
 */
import { batch, effect, signal, untracked } from "@preact/signals";
import { watchedStepsMax } from "../proto/feed/actors.ts";
import { TimelineAtRequest, TimelineService, TimelineStepsRequest, type TimelineStep } from "../proto/gen/page.ts";
import { asked, outOfRange, streamed } from "./asks.ts";
import { CallError } from "./model/call-error.ts";
import { ownSteps, PastBuilder } from "./model/past.ts";
import type { Moment } from "./model/route.ts";
import { Seeks } from "./model/seeks.ts";
import { contains, nearest, revealing, type Span } from "./model/span.ts";
import { address, addressed, changed, endFeed, link, liveActors, past, route } from "./state.ts";
import { edgeMs, fail, isRecording, known, look, show, trouble, view, whole } from "./time-line.ts";
import { momentText } from "./views/texts.ts";

/** Steps loaded with a moment: for what happened last, and with the traces in view for their list. */
const nearStepsMax = 50;
export const tracedStepsMax = 2_000;
/** After every clock's time, and still a date. */
export const endOfTimeMs = 8_640_000_000_000_000;

/** Where the cursor is; null: at the live edge. The picture follows as fast as it can be loaded. */
export const cursor = signal<Moment | null>(null);
/** A remark on the last move, such as that a moment is not known. */
export const note = signal("");
export const isSeeking = signal(false);

const chosen = (): { readonly process: string; readonly actor: string } | null => {
  const value = route.peek();
  return value.view === "actor" ? value : null;
};

/** Throws CallError. */
export async function stepsFor(
  fields: Partial<TimelineStepsRequest>,
  signal: AbortSignal,
): Promise<readonly TimelineStep[]> {
  const { steps } = await asked(TimelineService.methods.Steps, TimelineStepsRequest.create(fields), signal);
  return steps;
}

/** Up to and including the moment. */
const upTo = ({ atMs, step }: Moment): Partial<TimelineStepsRequest> =>
  step === 0 ? { atMs, backward: true } : { index: step + 1, backward: true };

/** `atMs`: when the newest step that counts was taken, or later. Throws CallError. */
async function loadPast(wanted: Moment, atMs: number, signal: AbortSignal): Promise<void> {
  const builder = new PastBuilder();
  const actor = chosen();
  const limit = route.peek().view === "sequence" ? tracedStepsMax : nearStepsMax;
  const [, steps, own] = await Promise.all([
    streamed(
      TimelineService.methods.At,
      TimelineAtRequest.create({ atMs, index: wanted.step }),
      (feed) => builder.take(feed),
      signal,
    ),
    stepsFor({ ...upTo(wanted), limit }, signal),
    actor === null
      ? []
      : stepsFor({ ...upTo(wanted), process: actor.process, actor: actor.actor, limit: watchedStepsMax }, signal),
  ]);
  if (signal.aborted || cursor.peek() === null) return;
  const newest = steps.at(-1);
  if (wanted.step !== 0 && (newest?.index !== wanted.step || newest.step?.atMs !== wanted.atMs)) {
    forgetStep(wanted);
    return;
  }
  batch(() => {
    past.value = builder.past(wanted, steps, actor?.process ?? "", ownSteps(own));
    trouble.value = "";
  });
}

const isKnown = ({ atMs }: Moment): boolean => {
  const range = known.peek();
  return range !== null && atMs >= range.fromMs && atMs <= Math.max(range.toMs, edgeMs.peek());
};

async function load(wanted: Moment, signal: AbortSignal): Promise<void> {
  isSeeking.value = true;
  try {
    // The page's own knowledge is up to a second old.
    if (!isKnown(wanted)) await look(true);
    if (signal.aborted) return;
    const { fromMs, toMs } = known.peek() ?? { fromMs: 0, toMs: endOfTimeMs };
    if (!isKnown(wanted)) retreat(wanted, { fromMs, toMs });
    // Since the newest step that the server knows, nothing has changed.
    else await loadPast(wanted, Math.min(toMs, wanted.atMs), signal);
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof CallError) || error.status !== outOfRange) fail(error);
    else {
      // It was forgotten meanwhile.
      await look(true);
      if (wanted.step !== 0 && isKnown(wanted)) {
        forgetStep(wanted);
        return;
      }
      const range = known.peek();
      if (range === null || contains(range, wanted.atMs)) fail(error);
      else retreat(wanted, range);
    }
  } finally {
    isSeeking.value = false;
  }
}

const seeks = new Seeks<Moment>(load);

/** An address from another server, or of an event that is not kept any more: its time still says something. */
function forgetStep({ atMs }: Moment): void {
  note.value = "The event that the address names is not known here; its time is shown.";
  move({ atMs, step: 0 }, false);
}

/** A moment that is not known: goes to the nearest one that is. */
function retreat({ atMs }: Moment, range: Span): void {
  const side = atMs < range.fromMs ? "before" : "after";
  note.value = `${momentText(atMs)} is ${side} everything that is known; the nearest moment is shown.`;
  move({ atMs: nearest(range, atMs), step: 0 }, false);
}

function move(to: Moment, isPassing: boolean): void {
  cursor.value = to;
  const part = view.peek();
  if (part !== null && !contains(part, to.atMs)) show(revealing(part, to.atMs, whole.peek()));
  seeks.to(to, isPassing);
  if (!isPassing) address(to);
}

/** Moves the cursor, and the picture after it. `isPassing`: the cursor is dragged, so the address does not follow yet. */
export function go(to: Moment, isPassing = false): void {
  note.value = "";
  move(to, isPassing);
}

/** To the present; in a recording, to its end. */
export function goLive(): void {
  const all = known.peek();
  if (isRecording.peek() && all !== null) {
    go({ atMs: all.toMs, step: 0 });
    return;
  }
  seeks.cancel();
  batch(() => {
    note.value = "";
    trouble.value = "";
    cursor.value = null;
    past.value = null;
  });
  if (view.peek() !== null) show(null);
  address(null);
  changed();
}

let stepsWanted = 0;
let isOfActor = false;
let isWalking = false;

/** Goes by events: `by` of them, back if negative. `onlyChosen`: only those of the chosen actor. */
export function walk(by: number, onlyChosen: boolean): void {
  if (onlyChosen !== isOfActor) stepsWanted = 0;
  isOfActor = onlyChosen;
  stepsWanted += by;
  if (!isWalking) void walkOn();
}

async function walkOn(): Promise<void> {
  isWalking = true;
  try {
    while (stepsWanted !== 0) {
      const by = stepsWanted;
      stepsWanted = 0;
      await walkBy(by, isOfActor ? chosen() : null);
    }
  } catch (error) {
    fail(error);
  } finally {
    isWalking = false;
  }
}

/** Time of the newest event, of the actor or of all, that the page has received itself; 0: none. */
const newestSeenMs = (actor: { readonly process: string; readonly actor: string } | null): number =>
  (actor === null
    ? liveActors.recent.items().at(-1)?.step.atMs
    : liveActors.stepsOf(actor.process, actor.actor).at(-1)?.atMs) ?? 0;

async function walkBy(by: number, actor: { readonly process: string; readonly actor: string } | null): Promise<void> {
  const { signal } = new AbortController();
  const of = actor === null ? {} : { process: actor.process, actor: actor.actor };
  const at = cursor.peek();
  if (at === null && by > 0) return;
  const loaded = past.peek();
  // A seek finds out which event the cursor stands on.
  const step = at === null || at.step !== 0 || loaded?.moment !== at ? (at?.step ?? 0) : loaded.step;
  const here: Moment = { atMs: at?.atMs ?? endOfTimeMs, step };
  // The server keeps new events back for a moment, until those of other processes have come.
  const seenMs = at === null ? newestSeenMs(actor) : 0;
  const steps =
    by > 0
      ? await stepsFor({ ...(step === 0 ? { atMs: here.atMs + 1 } : { index: step }), ...of, limit: by }, signal)
      : // The newest of them has made the states that are shown.
        await stepsFor({ ...upTo(here), ...of, limit: 1 - by, seenMs }, signal);
  const target = by > 0 ? steps.at(-1) : steps[0];
  if (target?.step != null) go({ atMs: target.step.atMs, step: target.index });
  if (by > 0 && target === undefined) note.value = "No later event is known.";
  if (by < 0 && steps.length < 2) note.value = "No earlier event is known.";
}

export function startSeeking(): void {
  // The address leads to the moment that it names.
  effect(() => {
    const at = addressed.value;
    untracked(() => {
      const here = cursor.value;
      if (at === "unreadable") {
        goLive();
        note.value = "The address names a moment that cannot be read (?at= takes a time such as 2026-11-25T14:03:07Z).";
      } else if (at === null) {
        if (here !== null && !isRecording.value) goLive();
      } else if (here?.atMs !== at.atMs || here.step !== at.step) {
        if (link.value.state === "live") go(at);
        else cursor.value = at;
      }
    });
  });
  effect(() => {
    if (link.value.state !== "live") return;
    untracked(() => {
      const here = cursor.value;
      if (here !== null && past.value?.moment.atMs !== here.atMs) seeks.to(here, false);
    });
  });
  // The events of another actor, and the traces for their list, belong to the picture.
  effect(() => {
    void route.value;
    untracked(() => {
      if (past.value !== null && cursor.value !== null) seeks.to(cursor.value, false);
    });
  });
  effect(() => {
    if (!isRecording.value) return;
    untracked(() => {
      endFeed();
      if (cursor.value === null && addressed.value === null) goLive();
    });
  });
}
