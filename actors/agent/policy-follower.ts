/**
 * The agent's side of the Policy service: what this node's dataplane is to know, kept through sessions with one manager after
 * another, and what the node has to say of it.
 *
 * PF1: the dataplane is told each change once and in order, beginning with a whole state; while no manager is reached, what was
 *      told last stays in force.
 */
import { FollowedState, type NodeState } from "../../machines/policy/node-state.ts";
import { isSameMessage } from "../../machines/same-message.ts";
import {
  PolicyFollowRequest,
  PolicyService,
  type DataplaneReport,
  type DataplaneUpdate,
} from "../../proto/gen/messages.ts";
import type { Clock, TimerHandle } from "../../runtime/ports.ts";
import { Status, type RpcChannel, type RpcError } from "../../runtime/rpc.ts";
import { ManagerStream, type ManagerStreamPorts } from "./manager-stream.ts";

/** Deadline of a report, in milliseconds; the manager answers once the log has it. */
const reportTimeoutMs = 15_000;
/** Between two reports, in milliseconds: what happens meanwhile is one. */
const reportPaceMs = 1_000;

/** What programs this node's network; the actor of a dataplane driver is one. */
export interface NodeDataplane {
  /** The first one is a whole state (`fresh`), each further one what changed. Must not throw. */
  take(change: DataplaneUpdate): void;
  /** Called at each change of what it has to say, and once soon; the result ends that. */
  onReport(listener: (report: DataplaneReport) => void): () => void;
}

export interface PolicyFollowerPorts extends ManagerStreamPorts {
  readonly clock: Clock;
}

export class PolicyFollower {
  readonly #clock: Clock;
  readonly #followed = new FollowedState();
  readonly #forget: () => void;
  readonly #stream: ManagerStream<DataplaneUpdate>;
  #report: DataplaneReport | null = null;
  #reported: DataplaneReport | null = null;
  /** Where a report is on its way; null: nowhere. */
  #underWay: RpcChannel | null = null;
  #timer: TimerHandle | null = null;

  /** `name`: the agent's, for the actor's id. */
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
        if (change !== null) dataplane.take(change);
        return change !== null;
      },
      interrupted: () => followed.interrupted(),
    });
    this.#forget = dataplane.onReport((report) => {
      this.#report = report;
      this.#schedule();
    });
  }

  /** What is in force on this node. */
  get state(): NodeState {
    return this.#followed.state;
  }

  /** A session with another manager, or a new one with the same. `leave`: it brings nothing, and another is to be found. */
  attach(channel: RpcChannel, leave: (reason: string) => void): { cancel(): void } {
    // Another manager may not have the last one: it is cheap to say again.
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
    // One at a time: of two that wait for the log the older could be written last.
    if (this.#underWay === channel) return;
    this.#underWay = channel;
    this.#reported = report;
    channel
      .unary(PolicyService.methods.Report, report, { timeoutMs: reportTimeoutMs })
      .catch((error: RpcError) => {
        // It is tried until somebody has it; who does not know the call never will.
        if (this.#stream.channel === channel && error.code !== Status.UNIMPLEMENTED) this.#reported = null;
      })
      .finally(() => {
        if (this.#underWay !== channel) return;
        this.#underWay = null;
        this.#schedule();
      });
  }
}
