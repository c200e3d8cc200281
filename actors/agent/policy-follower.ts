/**
 * The agent's side of the Policy service: what this node's dataplane is to know, kept through sessions with one manager after
 * another, and what the node has to say of it.
 *
 * PF1: the dataplane is told each change once and in order, beginning with a whole state; while no manager is reached, what was
 *      told last stays in force.
 */
import { policyStreamMachine, type PolicyStreamEvent } from "../../machines/policy/policy-stream.ts";
import { FollowedState, type NodeState } from "../../machines/policy/node-state.ts";
import { isSameMessage } from "../../machines/same-message.ts";
import {
  PolicyFollowRequest,
  PolicyService,
  type DataplaneReport,
  type DataplaneUpdate,
} from "../../proto/gen/messages.ts";
import type { Host, HostedActor } from "../../runtime/host.ts";
import type { Clock, Random, TimerHandle } from "../../runtime/ports.ts";
import { Status, type ReceivingCall, type RpcChannel, type RpcError } from "../../runtime/rpc.ts";
import { hosted } from "../hosted.ts";

/** Deadline of a report, in milliseconds; the manager answers once the log has it. */
const reportTimeoutMs = 15_000;
/** Between two reports, in milliseconds: what happens meanwhile is one. */
const reportPaceMs = 1_000;

const machine = hosted(policyStreamMachine, ["ask", "hangUp", "leave"], ["backoff"]);

/** What programs this node's network; the actor of a dataplane driver is one. */
export interface NodeDataplane {
  /** The first one is a whole state (`fresh`), each further one what changed. Must not throw. */
  take(change: DataplaneUpdate): void;
  /** Called at each change of what it has to say, and once soon; the result ends that. */
  onReport(listener: (report: DataplaneReport) => void): () => void;
}

export interface PolicyFollowerPorts {
  readonly clock: Clock;
  readonly host: Host;
  readonly random: Random;
}

/** A session with a manager that can be asked. */
interface Attached {
  readonly channel: RpcChannel;
  /** Ends it, for want of an answer. */
  readonly leave: (reason: string) => void;
}

interface Call {
  handle: ReceivingCall | null;
}

export class PolicyFollower {
  readonly #clock: Clock;
  readonly #dataplane: NodeDataplane;
  readonly #followed = new FollowedState();
  readonly #forget: () => void;
  readonly #actor: HostedActor<typeof policyStreamMachine>;
  #attached: Attached | null = null;
  #call: Call | null = null;
  #report: DataplaneReport | null = null;
  #reported: DataplaneReport | null = null;
  #timer: TimerHandle | null = null;

  /** `name`: the agent's, for the actor's id. */
  constructor({ clock, host, random }: PolicyFollowerPorts, name: string, dataplane: NodeDataplane) {
    this.#clock = clock;
    this.#dataplane = dataplane;
    this.#actor = machine.start(host, `policy-stream/${name}`, undefined, {
      effects: {
        ask: () => this.#ask(),
        hangUp: () => this.#hangUp(),
        leave: ({ reason }: { readonly reason: string }) => this.#attached?.leave(reason),
      },
      draw: (boundMs) => boundMs / 2 + random.below(Math.max(1, Math.floor(boundMs / 2))),
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
    if (this.#attached !== null) this.#tell({ type: "session.closed" });
    const attached = { channel, leave };
    this.#attached = attached;
    // Another manager may not have the last one: it is cheap to say again.
    this.#reported = null;
    this.#schedule();
    this.#tell({ type: "session.opened" });
    return {
      cancel: () => {
        if (this.#attached !== attached) return;
        this.#attached = null;
        this.#tell({ type: "session.closed" });
      },
    };
  }

  stop(): void {
    this.#forget();
    this.#attached = null;
    this.#hangUp();
    this.#actor.stop();
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer);
  }

  #tell(event: PolicyStreamEvent): void {
    this.#actor.actor.send(event);
  }

  #hangUp(): void {
    const call = this.#call;
    this.#call = null;
    call?.handle?.cancel();
  }

  #ask(): void {
    if (this.#attached === null) return;
    this.#followed.interrupted();
    // What it hears may come before the handle has been returned.
    const call: Call = { handle: null };
    this.#call = call;
    const request = PolicyFollowRequest.create({ version: this.#followed.version });
    call.handle = this.#attached.channel.serverStream(PolicyService.methods.Follow, request, {
      onMessage: (piece) => {
        if (this.#call !== call) return;
        const change = this.#followed.take(piece);
        if (change === null) return;
        this.#dataplane.take(change);
        this.#tell({ type: "state.taken" });
      },
      onEnd: (error) => {
        if (this.#call !== call) return;
        this.#call = null;
        // A manager of another make knows no policies.
        if (error?.code === Status.UNIMPLEMENTED) this.#tell({ type: "stream.unsupported" });
        else this.#tell({ type: "stream.ended", reason: error === null ? "the manager ended it" : error.message });
      },
    });
  }

  #schedule(): void {
    this.#timer ??= this.#clock.setTimeout(() => {
      this.#timer = null;
      this.#send();
    }, reportPaceMs);
  }

  #send(): void {
    const [channel, report] = [this.#attached?.channel, this.#report];
    if (channel === undefined || report === null || isSameMessage(report, this.#reported)) return;
    this.#reported = report;
    channel.unary(PolicyService.methods.Report, report, { timeoutMs: reportTimeoutMs }).catch((error: RpcError) => {
      // It is tried until somebody has it; who does not know the call never will.
      if (this.#attached?.channel !== channel || error.code === Status.UNIMPLEMENTED) return;
      this.#reported = null;
      this.#schedule();
    });
  }
}
