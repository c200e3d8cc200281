/**
 * A path between a node and its managers that repeats calls that may not have arrived: the same call comes a second time, later
 * than newer ones, and possibly when the node has another session.
 */
import { DispatcherService } from "../../proto/gen/messages.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import type { RpcChannel } from "../../runtime/ports/rpc.ts";
import type { SimClock } from "../../runtime/sim/clock.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";

/**
 * Time that a manager collects before it writes (about 100 ms), and that an agent needs for another session, in milliseconds.
 */
const soonMsMax = 100;
const lateMsMax = 8_000;

const { Heartbeat, UpdateTaskStatus } = DispatcherService.methods;
const repeated: ReadonlySet<string> = new Set([Heartbeat.path, UpdateTaskStatus.path]);

interface RepeatsOptions {
  readonly clock: SimClock;
  readonly random: SimRandom;
  readonly trace: SimTrace;
  /** Probability for each call that changes a manager's state; 0: never. */
  readonly chance: number;
}

/** Repeats the calls of one node through all its lives. */
export class Repeats {
  readonly #options: RepeatsOptions;
  #channel: RpcChannel | null = null;
  #isHealed = false;

  constructor(options: RepeatsOptions) {
    this.#options = options;
  }

  /** Stops repeating. */
  heal(): void {
    this.#isHealed = true;
  }

  /** The same channel. Repeated calls use the newest channel. */
  through(channel: RpcChannel): RpcChannel {
    if (this.#options.chance === 0) return channel;
    this.#channel = channel;
    return {
      unary: (method, request, options) => {
        this.#look(method, request);
        return channel.unary(method, request, options);
      },
      clientStream: (method) => channel.clientStream(method),
      serverStream: (method, request, receiver) => channel.serverStream(method, request, receiver),
      close: () => channel.close(),
      onClosed: (listener) => channel.onClosed(listener),
    };
  }

  #look<Request, Response>(method: MethodDescriptor<Request, Response>, request: Request): void {
    const { chance, clock, random, trace } = this.#options;
    if (this.#isHealed || !repeated.has(method.path) || !random.chance(chance)) return;
    const ms = random.between(0, random.chance(0.5) ? soonMsMax : lateMsMax);
    clock.schedule(
      () => {
        if (this.#isHealed) return;
        trace.mark("call.repeated");
        this.#channel?.unary(method, request).catch(() => {});
      },
      ms,
      null,
    );
  }
}
