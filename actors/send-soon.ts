/** Events to an actor itself in a later turn of the event loop, so that the commits of one turn lead to one round. */
import type { Clock } from "../runtime/ports/index.ts";

interface Receiver<Event> {
  getSnapshot(): { readonly status: string };
  send(event: Event): void;
}

/** Sends the event as soon as this turn is over. An actor that has stopped by then gets nothing. */
export function sendSoon<Event>(clock: Clock, actor: Receiver<Event>, event: Event): void {
  clock.soon(() => {
    if (actor.getSnapshot().status === "active") actor.send(event);
  });
}
