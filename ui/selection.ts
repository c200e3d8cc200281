/** Steps of the chosen actor or trace from before the page was opened, which it cannot have seen itself. */
import { effect, signal } from "@preact/signals";
import { watchedStepsMax } from "../proto/feed/actors.ts";
import type { ActorStep, TimelineStep } from "../proto/gen/page.ts";
import { ownSteps } from "./model/past.ts";
import type { Route } from "./model/route.ts";
import { endOfTimeMs, stepsFor, tracedStepsMax } from "./seeking.ts";
import { link, route } from "./state.ts";
import { fail } from "./time-line.ts";

/** Events of one trace; the service's own bound. Later ones are not shown. */
const traceStepsMax = 5_000;

/** Of the chosen actor, oldest first. */
export const earlier = signal<readonly ActorStep[]>([]);
/** Of the trace in view, or of all traces, oldest first. */
export const traced = signal<readonly TimelineStep[]>([]);

async function load(to: Route, signal: AbortSignal): Promise<void> {
  const end = { atMs: endOfTimeMs, backward: true };
  try {
    if (to.view === "actor")
      earlier.value = ownSteps(
        await stepsFor({ ...end, process: to.process, actor: to.actor, limit: watchedStepsMax }, signal),
      );
    else if (to.view === "sequence")
      traced.value = await stepsFor(
        to.trace === "" ? { ...end, limit: tracedStepsMax } : { traceId: to.trace, limit: traceStepsMax },
        signal,
      );
  } catch (error) {
    if (!signal.aborted) fail(error);
  }
}

export function startSelection(): void {
  effect(() => {
    const to = route.value;
    const loading = new AbortController();
    earlier.value = [];
    traced.value = [];
    if (link.value.state === "live") void load(to, loading.signal);
    return () => loading.abort();
  });
}
