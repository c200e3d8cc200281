/** The known past: the time line's range, the part of it in view, and the gaps. */
import { batch, computed, effect, signal, untracked } from "@preact/signals";
import { TimelineOverviewRequest, TimelineService, type TimelineOverview } from "../proto/gen/page.ts";
import { asked, unimplemented } from "./asks.ts";
import { CallError } from "./model/call-error.ts";
import type { Gap } from "./model/gaps.ts";
import type { Span } from "./model/span.ts";
import { link, liveActors } from "./state.ts";

/** Milliseconds between questions for what is known, as the live edge moves. */
const lookMs = 1_000;
/** The service's bound for the buckets of a picture. */
const bucketsMax = 4_000;
/** Losses of the connection that the page remembers; the oldest are forgotten. */
const lossesMax = 200;
const notConnected = "this page was not connected";

/** Null: nothing is known yet. */
export const overview = signal<TimelineOverview | null>(null);
/** The part that the overview's buckets divide. */
export const overviewed = signal<Span>({ fromMs: 0, toMs: 0 });
/** Everything that is kept; null: nothing is. */
export const known = signal<Span | null>(null);
/** The part in view; null: everything, with the live edge. */
export const view = signal<Span | null>(null);
/** Why the past cannot be shown; empty: it can. */
export const trouble = signal("");
/** Bars that the plot has room for. */
export const columns = signal(400);
/** Times at which the page was not connected. */
export const losses = signal<readonly Gap[]>([]);
/** A recorded file instead of a cluster. */
export const isRecording = computed(() => overview.value?.isRecording === true);

/** The newest moment, by the processes' clocks; moves with each look at what is known. */
export const edgeMs = signal(Date.now());
/** All that can be gone to. */
export const whole = computed<Span>(() => ({ fromMs: known.value?.fromMs ?? edgeMs.value, toMs: edgeMs.value }));
/** The part that is drawn. */
export const span = computed<Span>(() => view.value ?? whole.value);

/** The present by the clocks of the processes, which tell their times. */
function liveMs(): number {
  let skewMs = 0;
  for (const process of liveActors.processes.values()) if (!process.stale) ({ skewMs } = process);
  return Date.now() + skewMs;
}

let looking: AbortController | null = null;

/** Asks what is known. `isNew`: also cancels an earlier look, which was for another part. */
export async function look(isNew: boolean): Promise<void> {
  if (looking !== null && !isNew) return;
  looking?.abort();
  const mine = new AbortController();
  looking = mine;
  const part = view.peek();
  try {
    const { fromMs, toMs } = part ?? { fromMs: 0, toMs: 0 };
    const buckets = Math.max(1, Math.min(bucketsMax, columns.peek()));
    const request = TimelineOverviewRequest.create({ buckets, fromMs, toMs });
    const found = await asked(TimelineService.methods.Overview, request, mine.signal);
    batch(() => {
      known.value = found.toMs === 0 ? null : { fromMs: found.fromMs, toMs: found.toMs };
      overview.value = found;
      edgeMs.value = found.isRecording ? found.toMs : Math.max(found.toMs, liveMs());
      overviewed.value = {
        fromMs: Math.max(found.fromMs, fromMs),
        toMs: toMs === 0 ? found.toMs : Math.min(found.toMs, toMs),
      };
      trouble.value = "";
    });
  } catch (error) {
    if (looking === mine) fail(error);
  } finally {
    if (looking === mine) looking = null;
  }
}

/** Shows why a call failed. */
export function fail(error: unknown): void {
  if (!(error instanceof CallError)) throw error;
  // The header says that the connection is lost.
  if (link.peek().state !== "live") return;
  trouble.value =
    error.status === unimplemented ? "this server does not keep the past" : `the past cannot be read: ${error.message}`;
}

export function show(part: Span | null): void {
  view.value = part;
  void look(true);
}

export function startTimeLine(): void {
  let lostAtMs = 0;
  effect(() => {
    const { state } = link.value;
    untracked(() => {
      if (state === "live") {
        if (lostAtMs !== 0)
          losses.value = [...losses.value, { who: notConnected, fromMs: lostAtMs, toMs: liveMs() }].slice(-lossesMax);
        lostAtMs = 0;
        void look(true);
      } else if (state === "lost" && lostAtMs === 0 && !isRecording.value) lostAtMs = liveMs();
    });
  });
  setInterval(() => {
    if (link.value.state === "live" && !document.hidden && !isRecording.value) void look(false);
  }, lookMs);
}
