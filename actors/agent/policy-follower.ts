/**
 * The agent's side of the Policy service: the state of this node's dataplane, kept across sessions with different managers, and
 * the node's reports on it.
 *
 * PF1: the dataplane gets each change once and in order, starting with a complete state; while no manager is reachable, the
 *      last received state stays in use.
 */
import { FollowedState, type NodeState } from "../../machines/policy/node-state.ts";
import { isSameMessage } from "../../machines/same-message.ts";
import {
  PolicyFollowRequest,
  PolicyService,
  type DataplaneReport,
  type DataplaneUpdate,
} from "../../proto/gen/messages.ts";
import type { Clock, TimerHandle } from "../../runtime/ports/index.ts";
import { Status, type RpcChannel, type RpcError } from "../../runtime/ports/rpc.ts";
import { ManagerStream, type ManagerStreamPorts } from "./manager-stream.ts";

/** Deadline of a report, in milliseconds; the manager answers once the log has it. */
const reportTimeoutMs = 15_000;
/** Minimum interval of reports, in milliseconds: changes in between are merged. */
const reportPaceMs = 1_000;

/** Programs this node's network; the actor of a dataplane driver is one. */
export interface NodeDataplane {
  /**
   * The first change is a complete state (`fresh`), each further one an update. `traceparent`: trace context of the change; empty if
   * it is not traced. Must not throw.
   */
  take(change: DataplaneUpdate, traceparent: string): void;
  /** Calls the listener on each change of its report, and once soon; the result unsubscribes. */
  onReport(listener: (report: DataplaneReport) => void): () => void;
}

interface PolicyFollowerPorts extends ManagerStreamPorts {
  readonly clock: Clock;
}

export class PolicyFollower {
  readonly #clock: Clock;
  readonly #followed = new FollowedState();
  readonly #forget: () => void;
  readonly #stream: ManagerStream<DataplaneUpdate>;
  #report: DataplaneReport | null = null;
  #reported: DataplaneReport | null = null;
  /** Channel of the pending report; null: none. */
  #underWay: RpcChannel | null = null;
  #timer: TimerHandle | null = null;

  /** `name`: the agent's name, for the actor's id. */
  constructor(ports: PolicyFollowerPorts, name: string, dataplane: NodeDataplane) {
    const followed = this.#followed;
    this.#clock = ports.clock;
    this.#stream = new ManagerStream(ports, `policy-stream/${name}`, {
      open: (channel, on) =>
        channel.serverStream(
          PolicyService.methods.Follow,
          PolicyFollowRequest.create({ version: followed.version }),
          on,
        ),
      take: (piece) => {
        const change = followed.take(piece);
        if (change !== null) dataplane.take(change, piece.traceparent);
        return change !== null;
      },
      interrupted: () => followed.interrupted(),
    });
    this.#forget = dataplane.onReport((report) => {
      this.#report = report;
      this.#schedule();
    });
  }

  /** The state in use on this node. */
  get state(): NodeState {
    return this.#followed.state;
  }

  /**
   * To be called for a new session with the same or another manager. `leave`: ends a useless session, so that another manager
   * is tried.
   */
  attach(channel: RpcChannel, leave: (reason: string) => void): { cancel(): void } {
    // Another manager may not have the last report: repeating it is cheap.
    this.#reported = null;
    this.#schedule();
    return this.#stream.attach(channel, leave);
  }

  stop(): void {
    this.#forget();
    this.#stream.stop();
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer);
  }

  #schedule(): void {
    this.#timer ??= this.#clock.setTimeout(() => {
      this.#timer = null;
      this.#send();
    }, reportPaceMs);
  }

  #send(): void {
    const [channel, report] = [this.#stream.channel, this.#report];
    if (channel === null || report === null || isSameMessage(report, this.#reported)) return;
    // One at a time: of two reports waiting for the log, the older could be written last.
    if (this.#underWay === channel) return;
    this.#underWay = channel;
    this.#reported = report;
    channel
      .unary(PolicyService.methods.Report, report, { timeoutMs: reportTimeoutMs })
      .catch((error: RpcError) => {
        // Retried until a manager has it; one that lacks the call never will.
        if (this.#stream.channel === channel && error.code !== Status.UNIMPLEMENTED) this.#reported = null;
      })
      .finally(() => {
        if (this.#underWay !== channel) return;
        this.#underWay = null;
        this.#schedule();
      });
  }
}
