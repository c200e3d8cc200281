/**
 * The trace of one command: it begins with the first call that changes something, and every such call carries its context.
 *
 * Where nobody collects traces (no `OTEL_EXPORTER_OTLP_ENDPOINT`) the command still makes up a context: so whatever the
 * command leads to can be told by one id, in the log's transactions, the labels of tasks and the environment of processes
 * (`TRACEPARENT`), and a manager that does collect goes on with it. A command inside a trace (`TRACEPARENT` in its own
 * environment) continues that one.
 */
import { randomBytes } from "node:crypto";
import type { Span } from "@opentelemetry/api";
import type { MethodDescriptor } from "../proto/codec.ts";
import { RpcError, type RpcChannel } from "../runtime/rpc.ts";
import type { Tracing } from "../runtime/telemetry/tracing.ts";
import type { Shell } from "./shell.ts";

/** What a command may take longer because nobody collects at the endpoint, in milliseconds. */
const exportTimeoutMs = 2_000;
const changing = /\/(Create|Update|Remove)[A-Za-z]+$/;

export class CommandTrace {
  readonly #name: string;
  readonly #environment: NodeJS.ProcessEnv;
  readonly #startedAt: number;
  #begun: Promise<string> | null = null;
  #tracing: Tracing | null = null;
  #span: Span | null = null;

  /** `name` is the command's, such as `service create`: the name of the span. */
  constructor(name: string, startedAt: number, environment: NodeJS.ProcessEnv = process.env) {
    this.#name = name;
    this.#startedAt = startedAt;
    this.#environment = environment;
  }

  /** The same shell, whose connections send the context with each call that changes something. */
  shell(shell: Shell): Shell {
    return {
      ...shell,
      connect: async () => this.#channel(await shell.connect()),
      at: (host) => this.shell(shell.at(host)),
    };
  }

  /** Ends the span and sends it; never rejects. `error` is what the command failed with, or null. */
  async end(error: unknown, now: number): Promise<void> {
    const span = this.#span;
    if (span !== null && error !== null) {
      const { SpanStatusCode } = await import("@opentelemetry/api");
      const message = error instanceof Error ? error.message : "the command failed";
      span.setStatus({ code: SpanStatusCode.ERROR, message });
      if (error instanceof RpcError) span.setAttribute("rpc.grpc.status_code", error.code);
    }
    span?.end(now);
    // A collector that is away is no failure of the command.
    await this.#tracing?.shutdown().catch(() => undefined);
  }

  #channel(channel: RpcChannel): RpcChannel {
    return {
      unary: async (method, request, options) => {
        if (!isChanging(method)) return channel.unary(method, request, options);
        const traceparent = await (this.#begun ??= this.#begin());
        // A command that another one runs has its own span.
        return channel.unary(method, request, { traceparent, ...options });
      },
      serverStream: (method, request, receiver) => channel.serverStream(method, request, receiver),
      clientStream: (method) => channel.clientStream(method),
      close: () => channel.close(),
      onClosed: (listener) => channel.onClosed(listener),
    };
  }

  async #begin(): Promise<string> {
    const endpoint = this.#environment["OTEL_EXPORTER_OTLP_ENDPOINT"] ?? "";
    const outer = this.#environment["TRACEPARENT"] ?? "";
    if (endpoint === "") return isTraceparent(outer) ? outer : newTraceparent();
    // Loaded only here: it has more modules than the rest of the command.
    const [{ SpanKind }, { contextOf, createTracing, traceparentOf }] = await Promise.all([
      import("@opentelemetry/api"),
      import("../runtime/telemetry/tracing.ts"),
    ]);
    this.#tracing = await createTracing("muster-cli", endpoint, exportTimeoutMs);
    const options = { kind: SpanKind.CLIENT, startTime: this.#startedAt };
    this.#span = this.#tracing.tracer.startSpan(this.#name, options, contextOf(outer));
    return traceparentOf(this.#span);
  }
}

function isChanging(method: Pick<MethodDescriptor<never, never>, "path">): boolean {
  return changing.test(method.path);
}

const traceparent = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/** A W3C trace context that can be continued. */
function isTraceparent(text: string): boolean {
  return traceparent.test(text);
}

/** A sampled context of random ids. */
function newTraceparent(): string {
  return `00-${randomBytes(16).toString("hex")}-${randomBytes(8).toString("hex")}-01`;
}
