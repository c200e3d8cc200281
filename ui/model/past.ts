/** The actors as they were at a moment, built from the answers of the Timeline service. */
import { ActorFeed, type ActorStep, type TimelineStep } from "../../proto/gen/page.ts";
import { Actors } from "../../proto/feed/actors.ts";
import type { Moment } from "./route.ts";

export interface Past {
  /** The moment that is shown, as it was asked for. */
  readonly moment: Moment;
  /** Index of the newest event that had been handled; 0: none is known. */
  readonly step: number;
  readonly actors: Actors;
  /** Newest steps of all actors up to the moment, oldest first. */
  readonly steps: readonly TimelineStep[];
  /** Newest steps of the chosen actor up to the moment, oldest first. */
  readonly own: readonly ActorStep[];
}

/** Takes the feeds of `Timeline/At`, which are whole snapshots. */
export class PastBuilder {
  readonly actors = new Actors();
  readonly #sequences = new Map<string, number>();

  take(feed: ActorFeed): void {
    // They come from a file or an index, not from the process: their sequence numbers have holes.
    const sequence = (this.#sequences.get(feed.process) ?? 0) + 1;
    this.#sequences.set(feed.process, sequence);
    this.actors.apply(ActorFeed.create({ ...feed, sequence }), feed.atMs);
  }

  /** `own`: newest steps of the chosen actor, of `process`. */
  past(wanted: Moment, steps: readonly TimelineStep[], process: string, own: readonly ActorStep[]): Past {
    const newest = steps.at(-1);
    const last = own.at(-1);
    if (last !== undefined) this.actors.took(process, last);
    return { moment: wanted, step: newest?.index ?? 0, actors: this.actors, steps, own };
  }
}

export const ownSteps = (steps: readonly TimelineStep[]): readonly ActorStep[] =>
  steps.flatMap(({ step }) => (step === null ? [] : [step]));

/** Two lists of one actor's steps as one, oldest first: the newest `max`, each once. `older` comes before `newer`. */
export function joined(older: readonly ActorStep[], newer: readonly ActorStep[], max: number): readonly ActorStep[] {
  const [first] = newer;
  const before =
    first === undefined
      ? older
      : older.filter(({ atMs, number }) => atMs < first.atMs || (atMs === first.atMs && number < first.number));
  return [...before, ...newer].slice(-max);
}
