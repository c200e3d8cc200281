/**
 * SwarmKit's LogBroker and Logs services, on every manager: a subscription's home is the manager where it was opened, and the
 * nodes that listen at a manager answer for any home. Between managers, announcements and holdings are published, and output
 * goes from holder to home by requests, one at a time per publishing node.
 *
 * LB1: a follower that does not read makes no queue grow: the home answers `full`, the holder stops reading the node's stream,
 *      and HTTP/2 stops the node.
 * LB2: at most `stalledStreamsMax` of a node's streams may be stalled, since they share their connection's window with its
 *      heartbeats; the one stalled longest is closed.
 */
import type { Span } from "@opentelemetry/api";
import { disconnected, rejected, unfinished } from "../../machines/logs/nodes.ts";
import type { LogEnd } from "../../machines/logs/subscription.machine.ts";
import { checkPublish } from "../../machines/logs/publish.ts";
import { selectorProblem } from "../../machines/logs/selection.ts";
import { subscriptionOfNode } from "../../machines/logs/subscription-id.ts";
import {
  LogAnnouncement,
  LogDelivery,
  LogDeliveryAnswer,
  LogDeliveryAnswer_Verdict as Verdict,
  LogHolding,
  LogSelector,
  LogSubscriptionOptions,
  PublishLogsResponse,
  type LogAsk,
  type SubscribeLogsRequest,
} from "../../proto/gen/messages.ts";
import type { LogBrokerLines, LogLines, LogsLines, PublishedLines } from "../../proto/log-lines.ts";
import { newId } from "../../runtime/ids.ts";
import { RpcError, Status, type CallContext, type ServiceHandlers, type Sink } from "../../runtime/ports/rpc.ts";
import * as subjects from "../../runtime/subjects.ts";
import { busMessage } from "../bus-message.ts";
import { spans } from "../../runtime/telemetry/spans.ts";
import type { Environment, Running } from "../environment.ts";
import { continueSpan, describeSpan, endSpan } from "../tracing.ts";
import { LogHolder } from "./holder.ts";
import { LogHome } from "./home.ts";
import { fateOf, LogOutlet, type Fate } from "./outlet.ts";

/** Maximum subscriptions with their home at one manager; each costs a message a second to every manager. */
const subscriptionsMax = 1_000;
/** LB2: half of the connection's window of four streams (edges/grpc/http2/protocol.ts) stays for the session. */
export const stalledStreamsMax = 2;
/** A stream counts as stalled after this time without space, in milliseconds. */
const stalledMs = 2_000;
/** Timeout of a delivery to a home, in milliseconds; homes answer at once. */
const deliveryTimeoutMs = 2_000;

export interface LogBroker extends Running {
  readonly handlers: ServiceHandlers<typeof LogBrokerLines>;
  readonly logs: ServiceHandlers<typeof LogsLines>;
}

export function createLogBroker(env: Environment): LogBroker {
  return new Broker(env);
}

const statusOf = {
  invalid: Status.INVALID_ARGUMENT,
  unknown: Status.NOT_FOUND,
  foreign: Status.PERMISSION_DENIED,
} as const;

class Broker implements LogBroker {
  readonly handlers: ServiceHandlers<typeof LogBrokerLines>;
  readonly logs: ServiceHandlers<typeof LogsLines>;
  readonly #env: Environment;
  readonly #ids;
  /** Distinguishes the holdings of this process from those of an earlier one. */
  readonly #life: string;
  readonly #holder: LogHolder;
  readonly #homes = new Map<string, LogHome>();
  /** By node; each with its subscription. */
  readonly #outlets = new Map<string, Map<LogOutlet, string>>();
  readonly #stops: readonly (() => void)[];
  readonly #gauge;
  readonly #cut;
  #stopped = false;

  constructor(env: Environment) {
    this.#env = env;
    this.#ids = env.random.fork("log-broker");
    const { bus, managerId, telemetry } = env;
    this.#gauge = telemetry.metrics.gauge("muster_log_subscriptions", "Log subscriptions that this manager serves.");
    this.#cut = telemetry.metrics.counter(
      "muster_log_cut_total",
      "Followers that were cut off because they did not read.",
    );
    this.#life = newId(this.#ids);
    this.#holder = new LogHolder(env, {
      life: this.#life,
      report: (home, holding) => {
        if (home === managerId) this.#onHolding(holding);
        else bus.publish(subjects.logsHeld(home), LogHolding.encode(holding));
      },
      isPublishing: (nodeId, id) => [...(this.#outlets.get(nodeId)?.values() ?? [])].includes(id),
      onForgotten: (id) => this.#forgetOutlets(id),
    });
    this.handlers = {
      ListenSubscriptions: (_, sink, call) => this.#holder.listen(this.#callerOf(call), sink, call.signal),
      PublishLogs: (requests, call) => this.#publish(requests, call),
    };
    this.logs = { SubscribeLogs: (request, sink, call) => this.#subscribe(request, sink, call) };
    const subscriptions = [
      bus.subscribe(subjects.logsAnnounced, (message) => {
        const announcement = busMessage(env, LogAnnouncement, message);
        if (announcement !== null && announcement.home !== managerId) this.#holder.hear(announcement);
      }),
      bus.subscribe(subjects.logsHeld(managerId), (message) => {
        const holding = busMessage(env, LogHolding, message);
        if (holding !== null) this.#onHolding(holding);
      }),
      bus.subscribe(subjects.logsDelivered(managerId), (message) => {
        const delivery = busMessage(env, LogDelivery, message);
        const fate = delivery === null ? "gone" : this.#take(delivery);
        message.respond(answers[fate]);
      }),
    ];
    this.#stops = subscriptions.map((each) => () => each.unsubscribe());
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    for (const stop of this.#stops) stop();
    for (const home of this.#homes.values()) home.send({ type: "broker.stopped" });
    for (const outlets of this.#outlets.values()) for (const outlet of outlets.keys()) outlet.forget();
    this.#holder.stop((sink) => sink.end(new RpcError(Status.UNAVAILABLE, "log broker is stopped")));
  }

  #subscribe(request: SubscribeLogsRequest, sink: Sink<LogLines>, call: CallContext): void {
    this.#checkRunning();
    const problem = selectorProblem(request.selector);
    if (problem !== null) throw new RpcError(Status.INVALID_ARGUMENT, problem);
    const options = request.options ?? LogSubscriptionOptions.create({});
    // Engines refuse it, but only in their own logs.
    if (options.tail > 0) {
      const text = "log tail must be 0 for all lines, or -(n+1) for the last n";
      throw new RpcError(Status.INVALID_ARGUMENT, text);
    }
    if (this.#homes.size >= subscriptionsMax) {
      const text = `this manager already serves ${subscriptionsMax} log subscriptions`;
      throw new RpcError(Status.RESOURCE_EXHAUSTED, text);
    }
    const home = new LogHome(this.#env, {
      id: newId(this.#ids),
      selector: request.selector ?? LogSelector.create({}),
      options,
      sink,
      traceparent: call.traceparent,
      announce: (from, asks, close) => this.#announce(from, asks, close),
      onEnded: (ended, end) => this.#onEnded(ended, end),
    });
    this.#homes.set(home.id, home);
    this.#gauge.set(this.#homes.size);
    home.begin();
    const onAbort = (): void => home.send({ type: "follower.left" });
    if (call.signal.aborted) onAbort();
    else call.signal.addEventListener("abort", onAbort, { once: true });
  }

  #announce({ id, options, selector, traceparent }: LogHome, asks: readonly LogAsk[], close: boolean): void {
    const { bus, managerId } = this.#env;
    const announcement = LogAnnouncement.create({
      subscriptionId: id,
      home: managerId,
      selector,
      options,
      asks,
      close,
      traceparent,
    });
    bus.publish(subjects.logsAnnounced, LogAnnouncement.encode(announcement));
    if (!this.#stopped) this.#holder.hear(announcement);
  }

  #onEnded(home: LogHome, end: LogEnd): void {
    this.#homes.delete(home.id);
    this.#gauge.set(this.#homes.size);
    if (end.kind === "stalled") this.#cut.add();
    this.#announce(home, [], true);
  }

  #onHolding({ held, holder, left, subscriptionId }: LogHolding): void {
    const home = this.#homes.get(subscriptionId);
    if (home === undefined) return;
    home.held(held, holder);
    for (const { attempt, nodeId } of left)
      home.send({ type: "node.ended", nodeId, attempt, error: disconnected(nodeId) });
  }

  #take(delivery: LogDelivery): Fate {
    return this.#homes.get(delivery.subscriptionId)?.take(delivery) ?? "gone";
  }

  async #publish(requests: AsyncIterable<PublishedLines>, call: CallContext): Promise<PublishLogsResponse> {
    const nodeId = this.#callerOf(call);
    let outlet: LogOutlet | null = null;
    let subscriptionId: string | null = null;
    /** As the node names it. */
    let named: string | null = null;
    let isClosed = false;
    let span: Span | null = null;
    let bytes = 0;
    let failure: unknown = null;
    try {
      for await (const message of requests) {
        if (outlet?.isGone === true) break;
        const verdict = checkPublish(message, { nodeId, subscriptionId: named }, (text) =>
          this.#isAsked(nodeId, subscriptionOfNode(text).id),
        );
        // Also for a stream that is rejected at once: its subscription waits for it.
        if (outlet === null && (verdict.kind === "accepted" || verdict.kind === "foreign")) {
          named = message.subscriptionId;
          subscriptionId = subscriptionOfNode(named).id;
          outlet = this.#openOutlet(nodeId, subscriptionId);
          span = continueSpan(this.#env, spans.logsPublish, this.#holder.traceparentOf(subscriptionId));
        }
        if (verdict.kind !== "accepted") throw new RpcError(statusOf[verdict.kind], verdict.message);
        bytes += message.lines.length;
        if (message.close) {
          isClosed = true;
          break;
        }
        const room = outlet?.push(message.lines) ?? null;
        if (room !== null) await room;
      }
    } catch (error) {
      failure = error;
      throw error;
    } finally {
      if (span !== null) {
        describeSpan(span, spans.logsPublish, { "muster.node.id": nodeId, "muster.bytes": bytes });
        endSpan(this.#env, span, failure);
      }
      if (outlet !== null && subscriptionId !== null) {
        await outlet.end(isClosed ? "" : this.#shortfall(nodeId, subscriptionId, call, failure));
        this.#closeOutlet(nodeId, outlet);
        this.#holder.over(nodeId, subscriptionId, outlet.attempt);
      }
    }
    return PublishLogsResponse.create();
  }

  /** Why the output of a stream that ended without a close is incomplete; empty if it is complete, as in SwarmKit. */
  #shortfall(nodeId: string, subscriptionId: string, { signal }: CallContext, failure: unknown): string {
    // The streams of a connection end together, and the node's listening is one of them.
    if (signal.aborted) return this.#isAsked(nodeId, subscriptionId) ? unfinished(nodeId) : disconnected(nodeId);
    return failure instanceof RpcError ? rejected(nodeId, failure.message) : "";
  }

  #isAsked(nodeId: string, subscriptionId: string): boolean {
    return this.#holder.isKnown(subscriptionId) && this.#holder.attemptOf(nodeId, subscriptionId) !== null;
  }

  #openOutlet(nodeId: string, subscriptionId: string): LogOutlet {
    const attempt = this.#holder.attemptOf(nodeId, subscriptionId) ?? 0;
    const home = this.#holder.homeOf(subscriptionId) ?? "";
    const outlet = new LogOutlet({
      clock: this.#env.clock,
      subscriptionId,
      nodeId,
      attempt,
      holder: this.#life,
      streamId: newId(this.#ids),
      deliver: (delivery) => (home === this.#env.managerId ? this.#take(delivery) : this.#carry(home, delivery)),
      onStalled: () => this.#limitStalled(nodeId),
    });
    let outlets = this.#outlets.get(nodeId);
    if (outlets === undefined) this.#outlets.set(nodeId, (outlets = new Map<LogOutlet, string>()));
    outlets.set(outlet, subscriptionId);
    return outlet;
  }

  #closeOutlet(nodeId: string, outlet: LogOutlet): void {
    const outlets = this.#outlets.get(nodeId);
    outlets?.delete(outlet);
    if (outlets?.size === 0) this.#outlets.delete(nodeId);
  }

  #forgetOutlets(subscriptionId: string): void {
    for (const outlets of this.#outlets.values())
      for (const [outlet, id] of outlets) if (id === subscriptionId) outlet.forget();
  }

  async #carry(home: string, delivery: LogDelivery): Promise<Fate> {
    if (!this.#holder.isKnown(delivery.subscriptionId)) return "gone";
    const subject = subjects.logsDelivered(home);
    const outcome = await this.#env.bus.request(subject, LogDelivery.encode(delivery), {
      timeoutMs: deliveryTimeoutMs,
    });
    if (outcome.kind !== "reply") return "unsure";
    const answer = busMessage(this.#env, LogDeliveryAnswer, { subject, data: outcome.data });
    return answer === null ? "unsure" : fateOf[answer.verdict];
  }

  /** LB2 */
  #limitStalled(nodeId: string): void {
    const before = this.#env.clock.monotonic() - stalledMs;
    const stalled = [...(this.#outlets.get(nodeId)?.keys() ?? [])].filter(
      ({ stalledSince }) => stalledSince !== null && stalledSince <= before,
    );
    if (stalled.length <= stalledStreamsMax) return;
    const [longest] = stalled.toSorted((a, b) => (a.stalledSince ?? 0) - (b.stalledSince ?? 0));
    longest?.cut();
  }

  #checkRunning(): void {
    if (this.#stopped) throw new RpcError(Status.UNAVAILABLE, "log broker is stopped");
  }

  #callerOf(call: CallContext): string {
    this.#checkRunning();
    const { identity } = call.peer;
    if (identity !== null) return identity.nodeId;
    const why = "rpc error: code = PermissionDenied desc = no client certificates in request";
    throw new RpcError(Status.PERMISSION_DENIED, `Permission denied: unauthorized peer role: ${why}`);
  }
}

const encoded = (verdict: Verdict): Uint8Array => LogDeliveryAnswer.encode(LogDeliveryAnswer.create({ verdict }));
const answers: Readonly<Record<Fate, Uint8Array>> = {
  taken: encoded(Verdict.TAKEN),
  full: encoded(Verdict.FULL),
  gone: encoded(Verdict.GONE),
  unsure: encoded(Verdict.FULL),
};
