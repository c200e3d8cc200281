/** Hosts the chart of a stream of a manager's calculations for this node, across sessions with different managers. */
import { managerStreamMachine } from "../../machines/agent/manager-stream.machine.ts";
import { drawUpperHalf } from "../../lib/backoff.ts";
import type { Host, HostedActor } from "../../runtime/host.ts";
import type { Random } from "../../runtime/ports/index.ts";
import { Status, type ReceivingCall, type RpcChannel, type RpcError } from "../../runtime/ports/rpc.ts";

export interface ManagerStreamPorts {
  readonly host: Host;
  readonly random: Random;
}

interface Receiver<Piece> {
  onMessage(piece: Piece): void;
  onEnd(error: RpcError | null): void;
}

/** The followed state. */
export interface Followed<Piece> {
  /** Opens a stream that starts with a complete state. */
  open(channel: RpcChannel, on: Receiver<Piece>): ReceivingCall;
  /** Applies a piece; returns whether the state is complete again or has changed. */
  take(piece: Piece): boolean;
  /** To be called when the stream broke: incomplete pieces are dropped. */
  interrupted(): void;
}

/** A session with a manager. */
interface Attached {
  readonly channel: RpcChannel;
  /** Ends the session for lack of an answer. */
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

  /** `id`: the actor's id. */
  constructor({ host, random }: ManagerStreamPorts, id: string, followed: Followed<Piece>) {
    this.#followed = followed;
    this.#actor = host.start(managerStreamMachine, id, undefined, {
      effects: {
        ask: () => this.#ask(),
        hangUp: () => this.#hangUp(),
        leave: ({ reason }) => this.#attached?.leave(reason),
      },
      draw: drawUpperHalf(random),
    });
  }

  /** The current session's channel. */
  get channel(): RpcChannel | null {
    return this.#attached?.channel ?? null;
  }

  /**
   * To be called for a new session with the same or another manager. `leave`: ends a useless session, so that another manager
   * is tried.
   */
  attach(channel: RpcChannel, leave: (reason: string) => void): { cancel(): void } {
    if (this.#attached !== null) this.#actor.send({ type: "session.closed" });
    const attached = { channel, leave };
    this.#attached = attached;
    this.#actor.send({ type: "session.opened" });
    return {
      cancel: () => {
        if (this.#attached !== attached) return;
        this.#attached = null;
        this.#actor.send({ type: "session.closed" });
      },
    };
  }

  stop(): void {
    this.#attached = null;
    this.#hangUp();
    this.#actor.stop();
  }

  #hangUp(): void {
    const call = this.#call;
    this.#call = null;
    call?.handle?.cancel();
  }

  #ask(): void {
    if (this.#attached === null) return;
    this.#followed.interrupted();
    // Messages may arrive before the handle is returned.
    const call: Call = { handle: null };
    this.#call = call;
    call.handle = this.#followed.open(this.#attached.channel, {
      onMessage: (piece) => {
        if (this.#call === call && this.#followed.take(piece)) this.#actor.send({ type: "state.taken" });
      },
      onEnd: (error) => {
        if (this.#call !== call) return;
        this.#call = null;
        // A manager of another implementation lacks this service.
        if (error?.code === Status.UNIMPLEMENTED) this.#actor.send({ type: "stream.unsupported" });
        else
          this.#actor.send({
            type: "stream.ended",
            reason: error === null ? "the manager ended the stream" : error.message,
          });
      },
    });
  }
}
