/**
 * The nodes that listen for log subscriptions at this manager, and the subscriptions of all homes that it has heard of. Sends
 * nodes their requests, and homes the results.
 *
 * HD1: a node gets a subscription once for each stream on which it listens, and only where its session is.
 * HD2: a subscription of which nothing is heard for `forgetMs` is over: its home has died.
 * HD3: if its home was only silent, the nodes that it believes to be held here are reported as lost, since their output was
 *      dropped meanwhile; the home then asks for it with the next attempt.
 */
import {
  LogAsk,
  LogHolding,
  LogSelector,
  LogSubscriptionOptions,
  SubscriptionMessage,
  type LogAnnouncement,
} from "../../proto/gen/messages.ts";
import { idForNodes } from "../../machines/logs/subscription-id.ts";
import type { Sink, CallSignal } from "../../runtime/ports/rpc.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import type { Environment } from "../environment.ts";

/** Longer than a home waits for a silent manager, in milliseconds, so that its nodes' ends still find it. */
const forgetMs = 5_000;
const sweepMs = 1_000;
/** Maximum unread bytes of a listener; beyond it, its stream ends, and with it the session of a dead node. */
const listenerBytesMax = 1024 * 1024;

interface Listener {
  readonly nodeId: string;
  readonly sink: Sink<SubscriptionMessage>;
  readonly told: Map<string, Told>;
}

/** A node's state in one subscription: the attempt sent to it, and whether its end was sent. */
interface Told {
  readonly attempt: number;
  isClosed: boolean;
}

interface Known {
  announcement: LogAnnouncement;
  heardAt: number;
  /** By node: the last attempt that ended here. */
  readonly over: Map<string, number>;
}

interface HolderOptions {
  /** Identifies this process of the manager. */
  readonly life: string;
  /** Sends a holding to the home. */
  readonly report: (home: string, holding: LogHolding) => void;
  /** Whether the node's output for it is still in transit: its end will report the result. */
  readonly isPublishing: (nodeId: string, subscriptionId: string) => boolean;
  /** Called when the subscription is forgotten. */
  readonly onForgotten: (subscriptionId: string) => void;
}

export class LogHolder {
  readonly #env: Environment;
  readonly #options: HolderOptions;
  readonly #listeners = new Map<string, Listener>();
  readonly #known = new Map<string, Known>();
  readonly #gauge;
  #sweeping: TimerHandle | null = null;

  constructor(env: Environment, options: HolderOptions) {
    this.#env = env;
    this.#options = options;
    this.#gauge = env.telemetry.metrics.gauge(
      "muster_log_listeners",
      "Nodes that listen for log subscriptions at this manager.",
    );
  }

  /** A second stream of a node replaces the first, which may belong to a lost connection. */
  listen(nodeId: string, sink: Sink<SubscriptionMessage>, signal: CallSignal): void {
    const before = this.#listeners.get(nodeId);
    if (before !== undefined) this.#left(before);
    const listener: Listener = { nodeId, sink, told: new Map() };
    this.#listeners.set(nodeId, listener);
    this.#gauge.set(this.#listeners.size);
    const onAbort = (): void => {
      if (this.#listeners.get(nodeId) === listener) this.#left(listener);
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    for (const [id, known] of this.#known) {
      const ask = known.announcement.asks.find((each) => each.nodeId === nodeId);
      if (ask !== undefined && this.#holds(id, known, ask)) this.#report(known, [ask], []);
    }
  }

  hear(announcement: LogAnnouncement): void {
    const { asks, close, subscriptionId } = announcement;
    if (close && asks.length === 0) {
      this.#forget(subscriptionId);
      return;
    }
    let known = this.#known.get(subscriptionId);
    if (known === undefined) {
      known = { announcement, heardAt: 0, over: new Map() };
      this.#known.set(subscriptionId, known);
    }
    known.announcement = announcement;
    known.heardAt = this.#env.clock.monotonic();
    this.#sweepLater();
    const held: LogAsk[] = [];
    const left: LogAsk[] = [];
    for (const ask of asks) {
      const listener = this.#listeners.get(ask.nodeId);
      if (listener === undefined) continue;
      if (this.#holds(subscriptionId, known, ask)) held.push(ask);
      else if (this.#isLost(listener, subscriptionId, ask)) left.push(ask);
    }
    if (held.length + left.length > 0) this.#report(known, held, left);
  }

  isKnown(subscriptionId: string): boolean {
    return this.#known.has(subscriptionId);
  }

  homeOf(subscriptionId: string): string | null {
    return this.#known.get(subscriptionId)?.announcement.home ?? null;
  }

  /** Trace context of the subscription; empty: none. */
  traceparentOf(subscriptionId: string): string {
    return this.#known.get(subscriptionId)?.announcement.traceparent ?? "";
  }

  /** The attempt sent to the node; null when none was. */
  attemptOf(nodeId: string, subscriptionId: string): number | null {
    return this.#listeners.get(nodeId)?.told.get(subscriptionId)?.attempt ?? null;
  }

  /** To be called when the node's output for it has ended. */
  over(nodeId: string, subscriptionId: string, attempt: number): void {
    this.#known.get(subscriptionId)?.over.set(nodeId, attempt);
  }

  stop(end: (sink: Sink<SubscriptionMessage>) => void): void {
    if (this.#sweeping !== null) this.#env.clock.clearTimeout(this.#sweeping);
    for (const { sink } of this.#listeners.values()) end(sink);
    this.#listeners.clear();
    this.#known.clear();
  }

  /** Sends the node a new attempt. True when the node has it. HD1 */
  #holds(id: string, known: Known, ask: LogAsk): boolean {
    const listener = this.#listeners.get(ask.nodeId);
    if (listener === undefined || !this.#isHere(ask.nodeId)) return false;
    const told = listener.told.get(id);
    if (known.announcement.close) {
      if (told?.isClosed === false) this.#close(listener, id, known);
      return told?.attempt === ask.attempt;
    }
    if (told !== undefined && told.attempt >= ask.attempt) return told.attempt === ask.attempt;
    // Another manager was asked, or this one has forgotten that it was. HD3
    if (ask.holder !== "") return false;
    if ((known.over.get(ask.nodeId) ?? 0) >= ask.attempt) return false;
    // An earlier attempt no longer counts: the node starts again.
    if (told?.isClosed === false) this.#close(listener, id, known);
    listener.told.set(id, { attempt: ask.attempt, isClosed: false });
    // Output received before the node was lost is not requested again, and output since then does not count against the tail.
    const again = ask.since === null ? {} : { since: ask.since, tail: 0 };
    const message = messageOf(id, known);
    const options = LogSubscriptionOptions.patch(message.options ?? LogSubscriptionOptions.create({}), again);
    this.#tell(listener, SubscriptionMessage.patch(message, { options }));
    return true;
  }

  #close(listener: Listener, id: string, known: Known): void {
    const told = listener.told.get(id);
    if (told !== undefined) told.isClosed = true;
    this.#tell(listener, SubscriptionMessage.patch(messageOf(id, known), { close: true }));
  }

  /**
   * The attempt was sent here, and the session has moved elsewhere; or it was sent elsewhere, and the session has moved here; or
   * it was sent here, and is forgotten (HD3).
   */
  #isLost({ nodeId, told }: Listener, id: string, { attempt, holder }: LogAsk): boolean {
    if (told.get(id)?.attempt === attempt) return !this.#options.isPublishing(nodeId, id);
    return holder !== "" && this.#isHere(nodeId);
  }

  #tell(listener: Listener, message: SubscriptionMessage): void {
    if (listener.sink.bufferedBytes() > listenerBytesMax) {
      this.#left(listener);
      listener.sink.end();
      return;
    }
    listener.sink.write(message);
  }

  #isHere(nodeId: string): boolean {
    const record = this.#env.store.get("session", nodeId);
    return record === undefined || record.managerId === this.#env.managerId;
  }

  #left(listener: Listener): void {
    if (this.#listeners.get(listener.nodeId) === listener) this.#listeners.delete(listener.nodeId);
    this.#gauge.set(this.#listeners.size);
    for (const [id, { attempt }] of listener.told) {
      const known = this.#known.get(id);
      if (known === undefined || known.over.get(listener.nodeId) === attempt) continue;
      known.over.set(listener.nodeId, attempt);
      if (this.#options.isPublishing(listener.nodeId, id)) continue;
      this.#report(known, [], [LogAsk.create({ nodeId: listener.nodeId, attempt })]);
    }
  }

  #report({ announcement }: Known, held: readonly LogAsk[], left: readonly LogAsk[]): void {
    const { home, subscriptionId } = announcement;
    const holding = LogHolding.create({ subscriptionId, holder: this.#options.life, held, left });
    this.#options.report(home, holding);
  }

  #forget(id: string): void {
    const known = this.#known.get(id);
    if (known === undefined) return;
    this.#known.delete(id);
    for (const listener of this.#listeners.values()) {
      if (listener.told.get(id)?.isClosed === false) this.#close(listener, id, known);
      listener.told.delete(id);
    }
    this.#options.onForgotten(id);
  }

  /** HD2 */
  #sweepLater(): void {
    if (this.#sweeping !== null) return;
    const { clock } = this.#env;
    this.#sweeping = clock.setTimeout(() => {
      this.#sweeping = null;
      const now = clock.monotonic();
      for (const [id, { heardAt }] of this.#known) if (now - heardAt > forgetMs) this.#forget(id);
      if (this.#known.size > 0) this.#sweepLater();
    }, sweepMs);
  }
}

/** Engines crash without a selector or without options (worker protocol §8.2). */
function messageOf(id: string, { announcement }: Known): SubscriptionMessage {
  return SubscriptionMessage.create({
    id: idForNodes({ id, traceparent: announcement.traceparent }),
    selector: announcement.selector ?? LogSelector.create({}),
    options: announcement.options ?? LogSubscriptionOptions.create({}),
  });
}
