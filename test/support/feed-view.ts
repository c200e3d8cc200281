/** A listener's view of the actors, built from the live feed. */
import type { ActorFeed } from "../../proto/gen/messages.ts";

/** By process: the states of its actors, or why it is lost. */
export type FeedView = Map<string, Map<string, string> | string>;

/** Adds a message to a view; throws when it lacks the snapshot that it builds on. */
export function addToView(view: FeedView, { ended, lost, process, snapshot, steps }: ActorFeed): void {
  if (lost !== "") {
    view.set(process, lost);
    return;
  }
  if (snapshot?.begins === true) view.set(process, new Map());
  const actors = view.get(process);
  if (actors === undefined || typeof actors === "string") throw new Error(`${process} has steps, but no snapshot`);
  for (const { actor, states } of [...(snapshot?.actors ?? []), ...steps]) actors.set(actor, states.join(" "));
  for (const actor of ended) actors.delete(actor);
}

export function viewOf(messages: readonly ActorFeed[]): Record<string, Record<string, string> | string> {
  const view: FeedView = new Map();
  for (const message of messages) addToView(view, message);
  return Object.fromEntries(
    [...view].map(([process, actors]) => [process, typeof actors === "string" ? actors : Object.fromEntries(actors)]),
  );
}
