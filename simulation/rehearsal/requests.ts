/**
 * The requests of a rehearsal: each goes to one manager after the other until one takes it. Those that managers could not take
 * are recorded.
 */
import type { MethodDescriptor } from "../../proto/codec.ts";
import { RpcError, Status, type RpcChannel } from "../../runtime/ports/rpc.ts";
import type { SimPorts } from "../../runtime/sim/simulation.ts";
import type { SimManagers } from "../managers/managers.ts";

/** How long a user waits for the answer of one manager, in milliseconds. */
const answerMs = 10_000;
/** Pause before a request that failed at every manager is sent again, in milliseconds. */
const pauseMs = 1_000;

/** Answers to a repetition, from which follows that an earlier attempt succeeded whose answer was lost. */
const doneBefore: ReadonlySet<Status> = new Set([Status.NOT_FOUND, Status.ALREADY_EXISTS]);

/** Answers that another manager, or a later moment, would not change. */
const final: ReadonlySet<Status> = new Set([
  Status.INVALID_ARGUMENT,
  Status.NOT_FOUND,
  Status.ALREADY_EXISTS,
  Status.PERMISSION_DENIED,
  Status.FAILED_PRECONDITION,
  Status.UNIMPLEMENTED,
  Status.UNAUTHENTICATED,
]);

interface Channel {
  readonly of: RpcChannel;
  /** Calls that wait for an answer. */
  calls: number;
}

interface RequestsOptions {
  readonly ports: SimPorts;
  readonly managers: SimManagers;
  /** Managers could not take a request, in one sentence. */
  readonly onRefused: (request: string, reason: string) => void;
}

export class Requests {
  readonly #options: RequestsOptions;
  readonly #channels = new Map<string, Channel>();
  #next = 0;
  /** The cluster's id. */
  #organization = "";

  constructor(options: RequestsOptions) {
    this.#options = options;
  }

  /**
   * The answer; rejects with the last RpcError. `patienceMs`: for how long it is sent again and again, in milliseconds; with 0 each
   * manager is asked once, within the time that a user waits.
   */
  async send<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    request: Request,
    what: string,
    patienceMs = 0,
  ): Promise<Response> {
    const { clock } = this.#options.ports;
    const until = clock.monotonic() + patienceMs;
    const progress = { isRepeated: false };
    for (;;) {
      try {
        return await this.#sendOnce(method, request, progress);
      } catch (error) {
        if (!(error instanceof RpcError)) throw error;
        if (error.code === Status.ABORTED || (progress.isRepeated && doneBefore.has(error.code))) throw error;
        this.#options.onRefused(what, error.message);
        if (final.has(error.code) || clock.monotonic() >= until) throw error;
        await new Promise<void>((resolve) => void clock.after(pauseMs, resolve));
      }
    }
  }

  /** Asks each manager once, until one answers. */
  async #sendOnce<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    request: Request,
    progress: { isRepeated: boolean },
  ): Promise<Response> {
    const { managers, ports } = this.#options;
    const end = ports.clock.monotonic() + answerMs;
    let last: RpcError | null = null;
    for (let attempt = 0; attempt < managers.all.length; attempt += 1) {
      const timeoutMs = end - ports.clock.monotonic();
      if (timeoutMs <= 0) break;
      const asked = this.#next;
      const address = managers.all[asked % managers.all.length]?.address ?? "";
      const channel = this.#channel(address);
      channel.calls += 1;
      try {
        return await channel.of.unary(method, request, { timeoutMs });
      } catch (error) {
        if (!(error instanceof RpcError)) throw error;
        if (final.has(error.code) || error.code === Status.ABORTED) throw error;
        last = error;
        progress.isRepeated = true;
        // Requests that waited together move on by one manager, not each by one: they would come back to this one.
        if (this.#next === asked) this.#next += 1;
        this.#forget(address, channel);
      } finally {
        channel.calls -= 1;
        if (channel.calls === 0 && this.#channels.get(address) !== channel) channel.of.close();
      }
    }
    throw last ?? new RpcError(Status.DEADLINE_EXCEEDED, "no manager answered in time");
  }

  #channel(address: string): Channel {
    const { managers, ports } = this.#options;
    let channel = this.#channels.get(address);
    if (channel === undefined) {
      // A manager that has just started does not know it.
      this.#organization = managers.organization() || this.#organization;
      const identity = { nodeId: "", role: "swarm-manager" as const, organization: this.#organization };
      const opened = { of: ports.rpc.dial(address, identity), calls: 0 };
      opened.of.onClosed(() => this.#forget(address, opened));
      this.#channels.set(address, opened);
      channel = opened;
    }
    return channel;
  }

  /** The next request connects again; the last call of this connection closes it. */
  #forget(address: string, channel: Channel): void {
    if (this.#channels.get(address) === channel) this.#channels.delete(address);
  }
}
