/** Hosts `machines/dispatcher/dispatcher.ts`: counts the missing nodes, notices pauses of this process, and gives verdicts. */
import { dispatcherMachine, massDown } from "../../machines/dispatcher/dispatcher.ts";
import type { HostedActor } from "../../runtime/host.ts";
import type { TimerHandle } from "../../runtime/ports.ts";
import type { Environment, Running } from "../environment.ts";
import type { NodeSession, Verdict } from "./session.ts";

/** Between two looks at how things are, in milliseconds. A look counts all sessions, some 2 µs each. */
const lookPeriodMs = 1_000;
/** How long a count of missing nodes stands, in milliseconds: a mass of verdicts asked for at once counts once. */
const countAgeMsMax = 50;

export interface NodeTrouble {
  /** Nodes of own sessions that are missed now, or were declared DOWN in the last seconds. */
  readonly missing: number;
  /** No verdict is given now: too many nodes are missing at once, or the own view is not to be trusted. */
  readonly isHolding: boolean;
}

export interface JudgeOptions {
  /** After a pause of this process, no verdict for this long, in milliseconds. */
  readonly settleMs: number;
  readonly settled: () => boolean;
  readonly sessions: () => Iterable<NodeSession>;
}

export class Judge implements Running {
  readonly #env: Environment;
  readonly #options: JudgeOptions;
  readonly #hosted: HostedActor<typeof dispatcherMachine>;
  /** When this manager declared nodes DOWN, oldest first, within the window. */
  #downAt: number[] = [];
  #counted = { at: Number.NEGATIVE_INFINITY, missing: 0, nodes: 0 };
  #lookedAt: number;
  #timer: TimerHandle | null = null;

  constructor(env: Environment, options: JudgeOptions) {
    this.#env = env;
    this.#options = options;
    this.#lookedAt = env.clock.monotonic();
    const { log, metrics } = env.telemetry;
    const machine = dispatcherMachine.provide({
      actions: {
        reportPause: (_, { lateMs }) =>
          log.warn(
            { lateMs },
            "this process was stopped for a while: no node is declared DOWN until the nodes had time to be heard",
          ),
        reportHold: (_, { missing, nodes }) => {
          metrics
            .counter(
              "muster_mass_down_holds_total",
              "Times that too many nodes were missing at once to declare them DOWN.",
            )
            .add();
          log.error(
            { missing, nodes, holdMs: massDown.holdMs },
            "too many nodes are missing at once: declaring none of them DOWN for a while",
          );
        },
        reportRelease: (_, { missing, nodes }) =>
          log.error({ missing, nodes }, "the nodes are still missing after the hold: declaring them DOWN"),
      },
    });
    this.#hosted = env.host.start(machine, `dispatcher/${env.managerId}`, { settleMs: options.settleMs });
    this.#look();
  }

  noteDown(): void {
    this.#downAt.push(this.#env.clock.monotonic());
  }

  verdict(): Verdict {
    this.#feed(this.#env.clock.monotonic());
    const snapshot = this.#hosted.actor.getSnapshot();
    if (snapshot.hasTag("granting")) return { kind: "granted" };
    const { missing, nodes } = snapshot.context;
    const reason = snapshot.matches("holding")
      ? `${missing} of ${nodes} nodes are missing at once, which is more often a fault of the network or of this manager`
      : "this manager's own link to the bus, the log or its process was not healthy for a whole grace period";
    return { kind: "held", recheckMs: massDown.recheckMs, reason };
  }

  trouble(): NodeTrouble {
    this.#feed(this.#env.clock.monotonic());
    const { missing } = this.#hosted.actor.getSnapshot().context;
    return { missing, isHolding: !this.#hosted.actor.getSnapshot().hasTag("granting") };
  }

  stop(): void {
    if (this.#timer !== null) this.#env.clock.clearTimeout(this.#timer);
    this.#timer = null;
    this.#hosted.stop();
  }

  /** Looks regularly, so that a pause of this process is noticed and a hold can end. */
  #look(): void {
    const at = this.#env.clock.monotonic();
    this.#feed(at);
    this.#lookedAt = at;
    this.#timer = this.#env.clock.setTimeout(() => this.#look(), lookPeriodMs);
  }

  #feed(at: number): void {
    if (at - this.#counted.at > countAgeMsMax) this.#counted = this.#count(at);
    const { missing, nodes } = this.#counted;
    const lateMs = at - this.#lookedAt - lookPeriodMs;
    this.#hosted.actor.send({ type: "looked", at, settled: this.#options.settled(), lateMs, missing, nodes });
  }

  #count(at: number): { at: number; missing: number; nodes: number } {
    this.#downAt = this.#downAt.filter((time) => at - time < massDown.windowMs);
    let missing = this.#downAt.length;
    let nodes = missing;
    for (const session of this.#options.sessions()) {
      nodes += 1;
      if (session.isMissing(at)) missing += 1;
    }
    return { at, missing, nodes };
  }
}
