/**
 * A process's telemetry in a simulation: spans and log lines become lines of the trace. Their ids come from a separate random
 * stream, so that recording them does not affect what happens. Metrics are kept as numbers.
 */
import {
  context as contextApi,
  trace,
  TraceFlags,
  type Context,
  type Exception,
  type Span,
  type SpanContext,
  type SpanOptions,
  type SpanStatus,
  type Tracer,
} from "@opentelemetry/api";
import type { Clock, Headers, Logger, Metrics, Telemetry } from "../ports/index.ts";
import type { SimRandom } from "./random.ts";
import type { SimTrace } from "./trace.ts";

export interface SimTelemetry extends Telemetry {
  /** The metric's value: the sum of a counter, the last value of a gauge, the number of a histogram's observations. */
  reading(name: string, labels?: Headers): number;
}

interface SimTelemetryOptions {
  /** Name of the process in the trace. */
  readonly who: string;
  readonly clock: Clock;
  readonly random: SimRandom;
  readonly trace: SimTrace;
}

export function createSimTelemetry({ who, clock, random, trace: lines }: SimTelemetryOptions): SimTelemetry {
  const readings = new Map<string, number>();
  const log = (level: string) => (fields: object, message: string) => {
    // Messages are constant and variable parts are in the fields, so messages identify branches.
    if (level !== "debug") lines.mark(`${level}: ${message}`);
    if (lines.isKept) lines.write(who, `log.${level} ${message} ${describe(fields)}`);
  };
  const logger: Logger = { debug: log("debug"), info: log("info"), warn: log("warn"), error: log("error") };
  return {
    tracer: new SimTracer(who, clock, random, lines),
    metrics: createMetrics(readings),
    log: logger,
    reading: (name, labels) => readings.get(key(name, labels)) ?? 0,
  };
}

function createMetrics(readings: Map<string, number>): Metrics {
  const add = (name: string, value: number, labels: Headers | undefined) => {
    const of = key(name, labels);
    readings.set(of, (readings.get(of) ?? 0) + value);
  };
  return {
    counter: (name) => ({ add: (value = 1, labels) => add(name, value, labels) }),
    gauge: (name) => ({ set: (value, labels) => readings.set(key(name, labels), value) }),
    histogram: (name) => ({ observe: (_value, labels) => add(name, 1, labels) }),
  };
}

function key(name: string, labels: Headers | undefined): string {
  return labels === undefined ? name : `${name}${JSON.stringify(labels)}`;
}

/** Fields as one line of JSON; errors by name and message, since their stacks contain file paths. */
function describe(fields: object): string {
  return JSON.stringify(fields, (_key, value: unknown) => {
    if (value instanceof Error) return `${value.name}: ${value.message}`;
    if (value instanceof Uint8Array) return `${value.length} bytes`;
    if (typeof value === "bigint") return String(value);
    return value;
  });
}

class SimTracer implements Tracer {
  readonly #who: string;
  readonly #clock: Clock;
  readonly #random: SimRandom;
  readonly #lines: SimTrace;

  constructor(who: string, clock: Clock, random: SimRandom, lines: SimTrace) {
    this.#who = who;
    this.#clock = clock;
    this.#random = random;
    this.#lines = lines;
  }

  startSpan(name: string, options: SpanOptions = {}, context: Context = contextApi.active()): Span {
    const parent = options.root === true ? undefined : trace.getSpanContext(context);
    const spanContext: SpanContext = {
      traceId: parent?.traceId ?? hex(this.#random.bytes(16)),
      spanId: hex(this.#random.bytes(8)),
      traceFlags: TraceFlags.SAMPLED,
    };
    const began = this.#clock.now();
    return new SimSpan(name, spanContext, options.attributes, (span) => {
      const ms = this.#clock.now() - began;
      this.#lines.write(
        this.#who,
        `span ${span.describe()} ${spanContext.traceId}/${spanContext.spanId}<${parent?.spanId ?? ""} ${ms}ms`,
      );
    });
  }

  startActiveSpan<F extends (span: Span) => unknown>(name: string, fn: F): ReturnType<F>;
  startActiveSpan<F extends (span: Span) => unknown>(name: string, options: SpanOptions, fn: F): ReturnType<F>;
  startActiveSpan<F extends (span: Span) => unknown>(
    name: string,
    options: SpanOptions,
    context: Context,
    fn: F,
  ): ReturnType<F>;
  startActiveSpan(name: string, ...rest: readonly unknown[]): unknown {
    const fn = rest.at(-1) as (span: Span) => unknown;
    const [options, context] = rest.slice(0, -1) as [SpanOptions?, Context?];
    const parent = context ?? contextApi.active();
    const span = this.startSpan(name, options, parent);
    return contextApi.with(trace.setSpan(parent, span), fn, undefined, span);
  }
}

class SimSpan implements Span {
  readonly #context: SpanContext;
  readonly #onEnd: (span: SimSpan) => void;
  readonly #attributes: Record<string, unknown>;
  readonly #notes: string[] = [];
  #name: string;
  #ended = false;

  constructor(name: string, context: SpanContext, attributes: object | undefined, onEnd: (span: SimSpan) => void) {
    this.#name = name;
    this.#context = context;
    this.#attributes = { ...attributes };
    this.#onEnd = onEnd;
  }

  describe(): string {
    return `${this.#name} ${JSON.stringify(this.#attributes)}${this.#notes.map((note) => ` ${note}`).join("")}`;
  }

  spanContext(): SpanContext {
    return this.#context;
  }

  setAttribute(name: string, value: unknown): this {
    this.#attributes[name] = value;
    return this;
  }

  setAttributes(attributes: object): this {
    Object.assign(this.#attributes, attributes);
    return this;
  }

  addEvent(name: string): this {
    this.#notes.push(`event=${name}`);
    return this;
  }

  addLink(): this {
    return this;
  }

  addLinks(): this {
    return this;
  }

  setStatus(status: SpanStatus): this {
    this.#notes.push(`status=${status.code}`);
    return this;
  }

  updateName(name: string): this {
    this.#name = name;
    return this;
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#onEnd(this);
  }

  isRecording(): boolean {
    return !this.#ended;
  }

  recordException(exception: Exception): void {
    this.#notes.push(`exception=${typeof exception === "string" ? exception : (exception.message ?? "")}`);
  }
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("hex");
}
