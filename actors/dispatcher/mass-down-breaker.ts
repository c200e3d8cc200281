/**
 * Hosts `machines/dispatcher/mass-down-breaker.machine.ts`: counts the cluster's missing nodes, notices delays of this process, and gives
 * verdicts on nodes of its own sessions and, while this manager leads, on those whose manager is dead.
 */
import { isReady } from "../../machines/node.ts";
import {
  massDownBreakerMachine,
  isMass,
  massDown,
  objection,
  type Wait,
} from "../../machines/dispatcher/mass-down-breaker.machine.ts";
import { NodeStatus_State, type Node } from "../../proto/gen/messages.ts";
import type { EffectsOf, HostedActor } from "../../runtime/host.ts";
import type { Subscription, TimerHandle } from "../../runtime/ports/index.ts";
import { managerBeats } from "../../runtime/subjects.ts";
import { managerBeatOf } from "../bus-message.ts";
import type { Environment, Running } from "../environment.ts";
import type { NodeSession, Verdict } from "./session.ts";

/** Interval of checks, in milliseconds. A check counts all sessions, and all nodes after a change of one. */
const lookPeriodMs = 1_000;
/** How long a count of missing nodes is reused, in milliseconds: many simultaneous verdicts count once. */
const countAgeMsMax = 50;
/** How long another manager's report on its nodes is valid, in milliseconds: three of its beats. */
const saidMsMax = 3_000;
/**
 * Number of such checks that are remembered: no node is waited for longer than this many seconds unless the period was raised.
 */
const deafMax = 600;
/** Delay from which a timer counts as late, in milliseconds; smaller delays are normal. */
const lateMsMin = 50;
/**
 * When a node has waited for this process for longer, in milliseconds, silent nodes may be waiting for it too: SwarmKit's agents give a
 * new connection and its first calls 5 s.
 */
const nodesWaitMsMax = 1_000;

export interface NodeTrouble {
  /** Number of missing nodes of own sessions. */
  readonly missing: number;
  /** True while no verdict is given: too many nodes are missing at once, or the own view is not reliable. */
  readonly isHolding: boolean;
}

interface MassDownBreakerOptions {
  /** How long no verdict is given after a pause of this process, in milliseconds. */
  readonly settleMs: number;
  readonly settled: () => boolean;
  /** See DispatcherOptions. */
  readonly nodesWaitMs: () => number;
  readonly sessions: () => Iterable<NodeSession>;
}

/** Nodes in the log. */
interface Listed {
  /** That have registered, and whose state is unknown. */
  readonly unknown: number;
  readonly ready: number;
}

interface Count {
  readonly at: number;
  /** Of own sessions. */
  readonly own: number;
  /** In the whole cluster, as far as this manager knows. */
  readonly missing: number;
  readonly nodes: number;
}

export class MassDownBreaker implements Running {
  readonly #env: Environment;
  readonly #options: MassDownBreakerOptions;
  readonly #hosted: HostedActor<typeof massDownBreakerMachine>;
  readonly #beats: Subscription;
  /** When nodes were declared DOWN, by any manager, oldest first, within the window. */
  #downAt: number[] = [];
  /** Missing nodes that other managers last reported. */
  readonly #said = new Map<string, { readonly missing: number; readonly at: number }>();
  /** Checks that were late or found nodes waiting, and for how long nodes were not heard, oldest first. D5 */
  #deaf: { readonly at: number; readonly deafMs: number }[] = [];
  /** Null after a change of a node. */
  #listed: Listed | null = null;
  #counted: Count = { at: Number.NEGATIVE_INFINITY, own: 0, missing: 0, nodes: 0 };
  #lookedAt: number;
  /** When the chart last got a view because of a verdict. */
  #askedAt = Number.NEGATIVE_INFINITY;
  #timer: TimerHandle | null = null;

  constructor(env: Environment, options: MassDownBreakerOptions) {
    this.#env = env;
    this.#options = options;
    this.#lookedAt = env.clock.monotonic();
    const { log, metrics } = env.telemetry;
    const effects: EffectsOf<typeof massDownBreakerMachine> = {
      reportPause: ({ lateMs }) =>
        log.warn(
          { lateMs },
          "this process was paused: declaring no node DOWN until nodes have had time to send heartbeats",
        ),
      reportHold: ({ missing, nodes }) => {
        metrics
          .counter(
            "muster_mass_down_holds_total",
            "Times that too many nodes were missing at once to declare any of them DOWN.",
          )
          .add();
        log.error(
          { missing, nodes, holdMs: massDown.holdMs },
          "too many nodes are missing, or were a moment ago: declaring none of them DOWN for a while",
        );
      },
      reportRelease: ({ missing, nodes }) =>
        log.error(
          { missing, nodes },
          "nodes are still missing after the hold: declaring DOWN those that were silent throughout",
        ),
    };
    this.#hosted = env.host.start(
      massDownBreakerMachine,
      `mass-down-breaker/${env.managerId}`,
      { settleMs: options.settleMs },
      { effects },
    );
    this.#beats = env.bus.subscribe(managerBeats, (message) => {
      const beat = managerBeatOf(env, message);
      if (beat === null || beat.managerId === env.managerId) return;
      if (beat.missingNodes === 0) this.#said.delete(beat.managerId);
      else this.#said.set(beat.managerId, { missing: beat.missingNodes, at: env.clock.monotonic() });
    });
    this.#look();
  }

  /** To be called when a node's object changed (null: it was removed): nodes declared DOWN count as missing for a while. */
  onNode(node: Node | null, old: Node | null): void {
    this.#listed = null;
    if (node === null) return;
    const wasDown = old === null || old.status?.state === NodeStatus_State.DOWN;
    if (node.status?.state === NodeStatus_State.DOWN && !wasDown) this.#downAt.push(this.#env.clock.monotonic());
  }

  verdict(wait: Wait): Verdict {
    const at = this.#env.clock.monotonic();
    this.#feed(at, true);
    const snapshot = this.#hosted.snapshot;
    const { holdSince, missing, nodes, settlingUntil } = snapshot.context;
    // A thousand sessions that ask once a second would take a quarter of a starved manager's time.
    const held = (reason: string, forMs: number): Verdict => ({
      kind: "held",
      recheckMs: Math.max(massDown.recheckMs, forMs),
      reason,
    });
    if (snapshot.hasTag("granting")) {
      const found = objection(wait, {
        at,
        deafMs: this.#deafSince(wait.since, at),
        deafRecentlyMs: this.#deafSince(at - this.#options.settleMs, at),
        isReleasing: snapshot.matches("releasing"),
        holdSince,
      });
      return found === null ? { kind: "granted" } : held(found.reason, found.forMs);
    }
    if (!snapshot.matches("holding"))
      return held(
        "this manager's link to the bus, the log or its own process has not been healthy for a whole grace period",
        settlingUntil - at,
      );
    const when = isMass({ missing, nodes }) ? "at once" : "after more were missing at once";
    return held(
      `${missing} of ${nodes} nodes are missing ${when}, which is more likely a fault of the network or of this manager`,
      0,
    );
  }

  trouble(): NodeTrouble {
    this.#feed(this.#env.clock.monotonic(), false);
    return { missing: this.#counted.own, isHolding: !this.#hosted.snapshot.hasTag("granting") };
  }

  stop(): void {
    if (this.#timer !== null) this.#env.clock.clearTimeout(this.#timer);
    this.#timer = null;
    this.#beats.unsubscribe();
    this.#hosted.stop();
  }

  /** Checks regularly, so that a pause of this process is noticed and a hold can end. */
  #look(): void {
    const at = this.#env.clock.monotonic();
    const isBehind = this.#options.nodesWaitMs() > nodesWaitMsMax;
    const deafMs = isBehind ? at - this.#lookedAt : this.#lateMs(at);
    if (deafMs > lateMsMin) {
      this.#deaf.push({ at, deafMs });
      if (this.#deaf.length > deafMax) this.#deaf.shift();
    }
    this.#feed(at, false);
    this.#lookedAt = at;
    this.#timer = this.#env.clock.setTimeout(() => this.#look(), lookPeriodMs);
  }

  /** How late the next check is at `at`; 0 or less when it is not due. */
  #lateMs(at: number): number {
    return at - this.#lookedAt - lookPeriodMs;
  }

  /** For how long since then this process may have missed what nodes sent. D5, D6 */
  #deafSince(since: number, at: number): number {
    let deafMs = Math.max(0, this.#lateMs(at));
    for (let index = this.#deaf.length - 1; index >= 0; index -= 1) {
      const deaf = this.#deaf[index] as { at: number; deafMs: number };
      if (deaf.at <= since) break;
      deafMs += Math.min(deaf.deafMs, deaf.at - since);
    }
    return deafMs;
  }

  #feed(at: number, asked: boolean): void {
    if (asked && at - this.#askedAt < countAgeMsMax) return;
    if (asked) this.#askedAt = at;
    if (at - this.#counted.at > countAgeMsMax) this.#counted = this.#count(at);
    const { missing, nodes } = this.#counted;
    const lateMs = this.#lateMs(at);
    const settled = this.#options.settled();
    const [held] = this.#options.sessions();
    const serves = held !== undefined;
    this.#hosted.send({ type: "view.sampled", at, settled, serves, lateMs, missing, nodes, asked });
  }

  #count(at: number): Count {
    this.#downAt = this.#downAt.filter((time) => at - time < massDown.windowMs);
    const { ready, unknown } = (this.#listed ??= this.#list());
    let missing = this.#downAt.length + unknown;
    const nodes = missing + ready;
    const { store } = this.#env;
    let own = 0;
    for (const session of this.#options.sessions()) {
      if (!session.isMissing(at)) continue;
      own += 1;
      if (isReady(store.get("node", session.nodeId))) missing += 1;
    }
    for (const said of this.#said.values()) if (at - said.at < saidMsMax) missing += said.missing;
    return { at, own, missing: Math.min(missing, nodes), nodes };
  }

  #list(): Listed {
    let [unknown, ready] = [0, 0];
    for (const { description, status } of this.#env.store.all("node")) {
      // A node that never registered is not missing.
      if (status?.state === NodeStatus_State.UNKNOWN && description !== null) unknown += 1;
      else if (status?.state === NodeStatus_State.READY) ready += 1;
    }
    return { unknown, ready };
  }
}
