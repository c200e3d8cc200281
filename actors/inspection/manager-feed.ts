/**
 * The feed that another manager sends to one listener here: its own, and those of the agents connected to it. Hosts the chart of
 * the lease, and acknowledges publications, so that the other manager sends no more than there is room for.
 *
 * MF1: a publication that arrives after a later one of its outlet does not count, nor one of an earlier outlet.
 */
import { leaseMachine, leaseTimes, type LeaseEvent, type LeaseLoss } from "../../machines/inspection/lease.machine.ts";
import {
  FeedLease,
  FeedLeaseReply,
  FeedTaken,
  type ActorFeed,
  type ActorSelection,
  type FeedPublication,
  type FeedStanding,
} from "../../proto/gen/messages.ts";
import type { HostedActor } from "../../runtime/host.ts";
import * as subjects from "../../runtime/subjects.ts";
import { busMessage } from "../bus-message.ts";
import type { Environment } from "../environment.ts";
import { takenBytes } from "./window.ts";

/** Earlier outlets of one manager that are recognised: one for each of its restarts or losses during a listener's life. */
const outletsMax = 16;

interface ManagerFeedOptions {
  readonly listener: string;
  readonly managerId: string;
  readonly selection: ActorSelection;
  readonly onFeed: (outlet: string, feed: ActorFeed) => void;
  /** `now`: what the manager feeds. `arrived`: how far of it must have arrived, since it was sent before the last renewal. */
  readonly onStandings: (
    outlet: string,
    standings: { readonly now: readonly FeedStanding[]; readonly arrived: readonly FeedStanding[] },
  ) => void;
  /** Nothing more comes from the outlet; empty: from none. */
  readonly onLost: (outlet: string, reason: string) => void;
  /** Whether the listener has room for more. */
  readonly hasRoom: () => boolean;
}

export class ManagerFeed {
  readonly #env: Environment;
  readonly #options: ManagerFeedOptions;
  readonly #actor: HostedActor<typeof leaseMachine>;
  readonly #again = new Set<string>();
  readonly #earlier = new Set<string>();
  #outlet = "";
  #refusal = "";
  /** Number of the newest publication; the newest that is acknowledged. */
  #number = 0;
  #taken = 0;
  #bytes = 0;
  /** At some renewal, and when that was, on the monotonic clock. */
  #standings: readonly FeedStanding[] = [];
  #standingsMs = Number.NEGATIVE_INFINITY;

  constructor(env: Environment, options: ManagerFeedOptions) {
    this.#env = env;
    this.#options = options;
    const { listener, managerId } = options;
    this.#actor = env.host.start(
      leaseMachine,
      `feed-lease/${listener}-${managerId}`,
      { managerId },
      {
        effects: {
          ask: () => void this.#ask(),
          tellLost: ({ loss }) => options.onLost(this.#outlet, this.#reasonOf(loss)),
          release: () => env.bus.publish(subjects.feedLeased(managerId), FeedLease.encode(this.#lease(0))),
        },
      },
    );
  }

  /** Id of its current outlet; empty before the first. */
  get outlet(): string {
    return this.#outlet;
  }

  /** Asks for the snapshot of a process again. */
  wantAgain(process: string): void {
    this.#again.add(process);
    this.#send({ type: "snapshot.wanted" });
  }

  /** MF1 */
  take({ feed, number, outlet }: FeedPublication, bytes: number): void {
    if (feed === null || this.#earlier.has(outlet)) return;
    this.#adopt(outlet);
    if (number <= this.#number) return;
    this.#number = number;
    this.#bytes += bytes;
    this.#options.onFeed(outlet, feed);
  }

  /** To be called while there is room at the listener. */
  pump(): void {
    if (this.#bytes < takenBytes || this.#taken === this.#number) return;
    this.#bytes = 0;
    this.#taken = this.#number;
    const taken = FeedTaken.create({ listener: this.#options.listener, outlet: this.#outlet, number: this.#taken });
    this.#env.bus.publish(subjects.feedTaken(this.#options.managerId), FeedTaken.encode(taken));
  }

  stop(): void {
    this.#send({ type: "listener.left" });
    this.#actor.stop();
  }

  #send(event: LeaseEvent): void {
    this.#actor.send(event);
  }

  #lease(lastsMs: number): FeedLease {
    const { listener, selection } = this.#options;
    const again = [...this.#again];
    const [outlet, taken] = [this.#outlet, this.#taken];
    return FeedLease.create({ listener, home: this.#env.managerId, selection, lastsMs, again, outlet, taken });
  }

  async #ask(): Promise<void> {
    const subject = subjects.feedLeased(this.#options.managerId);
    if (this.#options.hasRoom()) [this.#taken, this.#bytes] = [this.#number, 0];
    const lease = this.#lease(leaseTimes.lastsMs);
    this.#again.clear();
    const { bus } = this.#env;
    const outcome = await bus.request(subject, FeedLease.encode(lease), { timeoutMs: leaseTimes.askTimeoutMs });
    if (outcome.kind === "no-responders") return this.#send({ type: "manager.missing" });
    const reply = outcome.kind === "reply" ? busMessage(this.#env, FeedLeaseReply, { ...outcome, subject }) : null;
    if (reply === null) {
      for (const process of lease.again) this.#again.add(process);
      return this.#send({ type: "manager.silent" });
    }
    this.#refusal = reply.refused;
    if (reply.refused !== "") return this.#send({ type: "manager.refused" });
    this.#adopt(reply.outlet);
    this.#send({ type: "manager.answered" });
    this.#options.onStandings(this.#outlet, { now: reply.standings, arrived: this.#arrived(reply.standings) });
  }

  /**
   * How far the processes that the manager still feeds were one renewal ago. Between renewals nothing: an answer to a wish for a
   * snapshot comes before the snapshot, and would lead to the same wish again.
   */
  #arrived(now: readonly FeedStanding[]): readonly FeedStanding[] {
    const nowMs = this.#env.clock.monotonic();
    if (nowMs - this.#standingsMs < leaseTimes.renewalMs) return [];
    const held = new Set(now.map(({ process }) => process));
    const arrived = this.#standings.filter(({ process }) => held.has(process));
    [this.#standings, this.#standingsMs] = [now, nowMs];
    return arrived;
  }

  #adopt(outlet: string): void {
    if (outlet === this.#outlet || this.#earlier.has(outlet)) return;
    const before = this.#outlet;
    this.#outlet = outlet;
    [this.#number, this.#taken, this.#bytes, this.#standings] = [0, 0, 0, []];
    if (before === "") return;
    this.#earlier.add(before);
    const [oldest] = this.#earlier;
    if (this.#earlier.size > outletsMax && oldest !== undefined) this.#earlier.delete(oldest);
    this.#options.onLost(before, "the manager began its feed anew");
  }

  #reasonOf(loss: LeaseLoss): string {
    switch (loss) {
      case "absent":
        return "no process of the manager is on the bus, or its version has no feed";
      case "silent":
        return `the manager did not answer for ${(leaseTimes.missedMax * leaseTimes.askTimeoutMs) / 1_000} s`;
      case "refused":
        return this.#refusal;
    }
  }
}
