/**
 * The listeners at other managers to which this manager publishes: one outlet for each, as long as it renews its lease.
 *
 * FL3: a listener that vanishes costs nothing after its lease: no outlet, no question to a node, no message.
 */
import {
  ActorFeed,
  ActorSelection,
  FeedLeaseReply,
  FeedLease,
  FeedPublication,
  FeedTaken,
} from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import { leaseTimes } from "../../machines/inspection/lease.machine.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import * as subjects from "../../runtime/subjects.ts";
import { busMessage } from "../bus-message.ts";
import type { Running } from "../environment.ts";
import { FeedOutlet, type FeedSources } from "./outlet.ts";
import { FeedWindow } from "./window.ts";

/** Listeners of other managers that one manager serves: each costs a share of every step. Beyond: refused, with a reason. */
export const leasesMax = 256;
/**
 * Maximum duration of a lease, in milliseconds: space for a later version that renews more rarely. A longer one is cut to it, so that
 * no message makes a listener that has vanished cost anything for long.
 */
const lastsMaxMs = 4 * leaseTimes.lastsMs;
/** Interval of looking for expired leases, in milliseconds. */
const sweepMs = 1_000;

/** NATS's default `max_payload`, with room for the seal, in bytes. A larger message counts as the loss of its process. */
const publicationBytesMax = 1_000_000;

interface Lease {
  readonly outletId: string;
  readonly outlet: FeedOutlet;
  readonly window: FeedWindow;
  /** On the monotonic clock. */
  untilMs: number;
}

export function serveFeedLeases(sources: FeedSources): Running & { readonly count: () => number } {
  const { bus, clock, managerId } = sources.env;
  const leases = new Map<string, Lease>();
  let timer: TimerHandle | null = null;

  function begin(listener: string, selection: ActorSelection): Lease {
    const outletId = newId(sources.ids);
    const window = new FeedWindow();
    const encoded = (feed: ActorFeed, number: number): Uint8Array =>
      FeedPublication.encode(FeedPublication.create({ listener, feed, holder: managerId, outlet: outletId, number }));
    const send = (feed: ActorFeed): void => {
      const number = window.next();
      let data = encoded(feed, number);
      if (data.length > publicationBytesMax) {
        const { atMs, process, sequence } = feed;
        const lost = `a message of its feed is too large for the bus: ${data.length} bytes`;
        data = encoded(ActorFeed.create({ process, sequence, atMs, lost }), number);
      }
      window.sent(number, data.length);
      bus.publish(subjects.feedPublished(feed.process, onlyActorOf(feed)), data);
    };
    const outlet = new FeedOutlet(sources, selection, { ready: () => window.isOpen, send });
    return { outletId, outlet, window, untilMs: 0 };
  }

  function end(listener: string): void {
    leases.get(listener)?.outlet.stop();
    leases.delete(listener);
  }

  function sweep(): void {
    timer = null;
    const now = clock.monotonic();
    for (const [listener, { untilMs }] of leases) if (now > untilMs) end(listener);
    if (leases.size > 0) timer = clock.setTimeout(sweep, sweepMs);
  }

  function renew({ again, lastsMs, listener, outlet, selection, taken }: FeedLease): FeedLeaseReply {
    if (lastsMs === 0) {
      end(listener);
      return FeedLeaseReply.create();
    }
    let lease = leases.get(listener);
    if (lease === undefined) {
      if (leases.size >= leasesMax)
        return FeedLeaseReply.create({ refused: `the manager already feeds ${leasesMax} listeners of other managers` });
      lease = begin(listener, selection ?? ActorSelection.create());
      leases.set(listener, lease);
      timer ??= clock.setTimeout(sweep, sweepMs);
    } else {
      // Publications were lost, and the listener acknowledges none of those that were the last: the window would stay shut.
      if (again.length > 0) lease.window.reset();
      lease.outlet.again(again);
      if (again.length > 0) lease.outlet.pump();
      acknowledge(listener, outlet, taken);
    }
    lease.untilMs = clock.monotonic() + Math.min(lastsMs, lastsMaxMs);
    return FeedLeaseReply.create({ outlet: lease.outletId, standings: lease.outlet.standings() });
  }

  function acknowledge(listener: string, outlet: string, number: number): void {
    const lease = leases.get(listener);
    if (lease?.outletId !== outlet) return;
    lease.window.taken(number);
    if (lease.window.isOpen) lease.outlet.pump();
  }

  const subscriptions = [
    bus.subscribe(subjects.feedLeased(managerId), (message) => {
      const lease = busMessage(sources.env, FeedLease, message);
      if (lease !== null) message.respond(FeedLeaseReply.encode(renew(lease)));
    }),
    bus.subscribe(subjects.feedTaken(managerId), (message) => {
      const taken = busMessage(sources.env, FeedTaken, message);
      if (taken !== null) acknowledge(taken.listener, taken.outlet, taken.number);
    }),
  ];
  return {
    count: () => leases.size,
    stop() {
      for (const each of subscriptions) each.unsubscribe();
      for (const listener of leases.keys()) end(listener);
      if (timer !== null) clock.clearTimeout(timer);
      timer = null;
    },
  };
}

/** The actor that a message is about; null if it is about several or none. */
function onlyActorOf({ ended, snapshot, steps }: ActorFeed): string | null {
  if (snapshot !== null && (snapshot.begins || snapshot.ends)) return null;
  const actors = new Set([
    ...ended,
    ...steps.map(({ actor }) => actor),
    ...(snapshot?.actors ?? []).map(({ actor }) => actor),
  ]);
  const [only = null] = actors;
  return actors.size === 1 ? only : null;
}
