/**
 * The trace of one command: starts with the first call that changes something or reads the output of tasks; every such call
 * carries its context.
 *
 * Without a collector (no `OTEL_EXPORTER_OTLP_ENDPOINT`) the command still creates a context, so that one id identifies all its
 * effects in the log's transactions, the labels of tasks and the environment of processes (`TRACEPARENT`), and a manager that
 * has a collector continues the trace. A command inside a trace (`TRACEPARENT` in its own environment) continues that trace.
 */
import { randomBytes } from "node:crypto";
import type { Span } from "@opentelemetry/api";
import type { MethodDescriptor } from "../proto/codec.ts";
import { RpcError, Status, type ReceivingCall, type RpcChannel } from "../runtime/ports/rpc.ts";
import type { Tracing } from "../runtime/telemetry/tracing.ts";
import type { Shell } from "./shell.ts";

/** Maximum delay of a command whose collector does not answer, in milliseconds. */
const exportTimeoutMs = 2_000;
/** Reads with spans of their own in the manager. */
const tracedStream = /\/SubscribeLogs$/;
const changing = /\/(Create|Update|Remove)[A-Za-z]+$/;

export class CommandTrace {
  readonly #name: string;
  readonly #environment: NodeJS.ProcessEnv;
  readonly #startedAt: number;
  #begun: Promise<string> | null = null;
  #tracing: Tracing | null = null;
  #span: Span | null = null;

  /** `name`: the command's name, such as `service create`, used as the span's. */
  constructor(name: string, startedAt: number, environment: NodeJS.ProcessEnv = process.env) {
    this.#name = name;
    this.#startedAt = startedAt;
    this.#environment = environment;
  }

  /** A shell whose connections send the context with each call that changes something. */
  shell(shell: Shell): Shell {
    return {
      ...shell,
      connect: async () => this.#channel(await shell.connect()),
      at: (host) => this.shell(shell.at(host)),
    };
  }

  /** Ends and exports the span; never rejects. `error`: the command's failure, or null. */
  async end(error: unknown, now: number): Promise<void> {
    const span = this.#span;
    if (span !== null && error !== null) {
      const { SpanStatusCode } = await import("@opentelemetry/api");
      const message = error instanceof Error ? error.message : "the command failed";
      span.setStatus({ code: SpanStatusCode.ERROR, message });
      if (error instanceof RpcError) span.setAttribute("rpc.grpc.status_code", error.code);
    }
    span?.end(now);
    // An unreachable collector does not fail the command.
    await this.#tracing?.shutdown().catch(() => undefined);
  }

  #channel(channel: RpcChannel): RpcChannel {
    return {
      unary: async (method, request, options) => {
        if (!isChanging(method)) return channel.unary(method, request, options);
        const traceparent = await (this.#begun ??= this.#begin());
        // A command run by another one has its own span.
        return channel.unary(method, request, { traceparent, ...options });
      },
      serverStream: (method, request, receiver, options) => {
        if (!tracedStream.test(method.path)) return channel.serverStream(method, request, receiver, options);
        return onceBegun((this.#begun ??= this.#begin()), {
          start: (traceparent) => channel.serverStream(method, request, receiver, { traceparent, ...options }),
          fail: (error) => receiver.onEnd(error),
        });
      },
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
    const [{ SpanKind }, { contextOf, createTracing, traceparentOf }, { commandSpan }] = await Promise.all([
      import("@opentelemetry/api"),
      import("../runtime/telemetry/tracing.ts"),
      import("../runtime/telemetry/spans.ts"),
    ]);
    this.#tracing = await createTracing("muster-cli", endpoint, { exportTimeoutMs });
    const options = { kind: SpanKind.CLIENT, startTime: this.#startedAt };
    this.#span = this.#tracing.tracer.startSpan(commandSpan(this.#name).name, options, contextOf(outer));
    return traceparentOf(this.#span);
  }
}

/** A stream that starts with the trace. */
function onceBegun(
  begun: Promise<string>,
  { fail, start }: { start(traceparent: string): ReceivingCall; fail(error: RpcError): void },
): ReceivingCall {
  let call: ReceivingCall | null = null;
  let isCancelled = false;
  let isPaused = false;
  begun.then(
    (traceparent) => {
      if (isCancelled) return;
      call = start(traceparent);
      if (isPaused) call.pause();
    },
    (error: unknown) => {
      if (!isCancelled) fail(new RpcError(Status.INTERNAL, `cannot start the trace: ${String(error)}`));
    },
  );
  return {
    cancel() {
      isCancelled = true;
      call?.cancel();
    },
    pause() {
      isPaused = true;
      call?.pause();
    },
    resume() {
      isPaused = false;
      call?.resume();
    },
  };
}

function isChanging(method: Pick<MethodDescriptor<never, never>, "path">): boolean {
  return changing.test(method.path);
}

const traceparent = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/** Whether the text is a valid W3C trace context. */
function isTraceparent(text: string): boolean {
  return traceparent.test(text);
}

/** A sampled context with random ids. */
function newTraceparent(): string {
  return `00-${randomBytes(16).toString("hex")}-${randomBytes(8).toString("hex")}-01`;
}
