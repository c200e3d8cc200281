/** A client of the cluster: calls some manager's Control service, and tries another one if it does not answer. */
import { endSpan, startSpan } from "../../actors/tracing.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import { isRefusal, type Answers } from "../invariants/answers.ts";
import { RpcError, Status, type RpcChannel } from "../../runtime/ports/rpc.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { SimIdentity } from "../../runtime/sim/rpc.ts";
import type { SimPorts } from "../../runtime/sim/simulation.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";
import { commandSpan } from "../../runtime/telemetry/spans.ts";
import { traceparentOf } from "../../runtime/telemetry/tracing.ts";

const callTimeoutMs = 10_000;
const retryMs = 500;

export interface ClientOptions {
  readonly ports: SimPorts;
  readonly trace: SimTrace;
  readonly addresses: readonly string[];
  readonly identity: SimIdentity;
  /** Null: answers are not checked. */
  readonly answers: Answers | null;
}

/** The command's words, such as `service create`, for the method `CreateService`. */
function commandOf({ path }: Pick<MethodDescriptor<never, never>, "path">): string {
  const [verb = "", ...noun] = (path.split("/").at(-1) ?? "").split(/(?=[A-Z])/);
  return [...noun, verb].join(" ").toLowerCase();
}

export class SimClient {
  readonly #options: ClientOptions;
  readonly #random: SimRandom;
  #channel: RpcChannel | null = null;

  constructor(options: ClientOptions, random: SimRandom) {
    this.#options = options;
    this.#random = random;
  }

  /** Calls one manager; a failed read is retried once, perhaps at another manager. */
  async call<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    request: Request,
    what: string,
  ): Promise<Response> {
    const { answers, ports, trace } = this.#options;
    const isRead = method.path.includes("/Get") || method.path.includes("/List");
    for (let attempt = 0; ; attempt += 1) {
      const channel = (this.#channel ??= this.#dial());
      // Each call is a command of its own.
      const span = isRead ? null : startSpan(ports, commandSpan(commandOf(method)), "");
      const traceparent = span === null ? "" : traceparentOf(span);
      try {
        const response = await channel.unary(method, request, { timeoutMs: callTimeoutMs, traceparent });
        if (span !== null) endSpan(ports, span);
        if (method.path.includes("/Create")) answers?.acknowledged(traceparent, what);
        trace.write("client", `${what}: done`);
        return response;
      } catch (error) {
        if (span !== null) endSpan(ports, span, error);
        const code = error instanceof RpcError ? error.code : null;
        trace.write("client", `${what}: ${code} ${error instanceof Error ? error.message : ""}`);
        if (traceparent !== "" && isRefusal(error)) answers?.refused(traceparent, what);
        if (this.#channel === channel) {
          channel.close();
          this.#channel = null;
        }
        if (attempt > 0 || !isRead || (code !== Status.UNAVAILABLE && code !== Status.DEADLINE_EXCEEDED)) throw error;
        await new Promise<void>((resolve) => ports.clock.after(retryMs, resolve));
      }
    }
  }

  /** Ignores refusals and lost calls; any other error is a bug of the simulation. */
  async attempt(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      this.#options.trace.write("client", `gave up: ${error.code} ${error.message}`);
    }
  }

  #dial(): RpcChannel {
    const { addresses, identity, ports } = this.#options;
    return ports.rpc.dial(this.#random.pick(addresses), identity);
  }
}
