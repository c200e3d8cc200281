/** Hosts the chart of a stream of what a manager calculates for this node, over sessions with one manager after another. */
import { managerStreamMachine, type ManagerStreamEvent } from "../../machines/agent/manager-stream.ts";
import type { Host, HostedActor } from "../../runtime/host.ts";
import type { Random } from "../../runtime/ports.ts";
import { Status, type ReceivingCall, type RpcChannel, type RpcError } from "../../runtime/rpc.ts";
import { hosted } from "../hosted.ts";

const machine = hosted(managerStreamMachine, ["ask", "hangUp", "leave"], ["backoff"]);

export interface ManagerStreamPorts {
  readonly host: Host;
  readonly random: Random;
}

interface Receiver<Piece> {
  onMessage(piece: Piece): void;
  onEnd(error: RpcError | null): void;
}

/** What is followed. */
export interface Followed<Piece> {
  /** Asks for a whole state. */
  open(channel: RpcChannel, on: Receiver<Piece>): ReceivingCall;
  /** Whether what this node knows is whole again, or another. */
  take(piece: Piece): boolean;
  /** The stream broke: what was on its way is nothing. */
  interrupted(): void;
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

export class ManagerStream<Piece> {
  readonly #followed: Followed<Piece>;
  readonly #actor: HostedActor<typeof managerStreamMachine>;
  #attached: Attached | null = null;
  #call: Call | null = null;

  /** `id`: of the actor. */
  constructor({ host, random }: ManagerStreamPorts, id: string, followed: Followed<Piece>) {
    this.#followed = followed;
    this.#actor = machine.start(host, id, undefined, {
      effects: {
        ask: () => this.#ask(),
        hangUp: () => this.#hangUp(),
        leave: ({ reason }: { readonly reason: string }) => this.#attached?.leave(reason),
      },
      draw: (boundMs) => boundMs / 2 + random.below(Math.max(1, Math.floor(boundMs / 2))),
    });
  }

  /** Of the session that there is. */
  get channel(): RpcChannel | null {
    return this.#attached?.channel ?? null;
  }

  /** A session with another manager, or a new one with the same. `leave`: it brings nothing, and another is to be found. */
  attach(channel: RpcChannel, leave: (reason: string) => void): { cancel(): void } {
    if (this.#attached !== null) this.#tell({ type: "session.closed" });
    const attached = { channel, leave };
    this.#attached = attached;
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
    this.#attached = null;
    this.#hangUp();
    this.#actor.stop();
  }

  #tell(event: ManagerStreamEvent): void {
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
    call.handle = this.#followed.open(this.#attached.channel, {
      onMessage: (piece) => {
        if (this.#call === call && this.#followed.take(piece)) this.#tell({ type: "state.taken" });
      },
      onEnd: (error) => {
        if (this.#call !== call) return;
        this.#call = null;
        // A manager of another make does not know it.
        if (error?.code === Status.UNIMPLEMENTED) this.#tell({ type: "stream.unsupported" });
        else this.#tell({ type: "stream.ended", reason: error === null ? "the manager ended it" : error.message });
      },
    });
  }
}
