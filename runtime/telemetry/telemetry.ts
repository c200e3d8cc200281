/** A process's telemetry: structured logs (pino), metrics (Prometheus) and traces (OpenTelemetry) behind one port. */
import pino from "pino";
import type { Telemetry } from "../ports/index.ts";
import { recordSpan, recordingLogger } from "../recording/recorded-log.ts";
import type { RecordingRing } from "../recording/ring.ts";
import { createMetrics, type PrometheusMetrics } from "./metrics.ts";
import { createTracing } from "./tracing.ts";

export interface ProcessTelemetry extends Telemetry {
  readonly metrics: PrometheusMetrics;
  /** Reopens the log file by name, after log rotation; null for a process without one. */
  readonly reopenLog: (() => void) | null;
  /** trace, debug, info, warn, error, fatal or silent. */
  readonly setLogLevel: (level: string) => void;
  /** The ring of this process's last minutes; null: it is off. */
  readonly recorder: RecordingRing | null;
  shutdown(): Promise<void>;
}

interface TelemetryOptions {
  /** `muster-manager`, `muster-agent`, …; the service.name of traces and the name in logs. */
  readonly service: string;
  /** trace, debug, info, warn, error, fatal or silent. */
  readonly level: string;
  /** File to append to; absent: standard error. */
  readonly logFile?: string;
  readonly otlpEndpoint: string | undefined;
  /** Keeps log lines and spans of the last minutes; null or absent: nothing is kept. */
  readonly recorder?: RecordingRing | null;
}

export async function createTelemetry(options: TelemetryOptions): Promise<ProcessTelemetry> {
  const { recorder = null } = options;
  const tracing = await createTracing(
    options.service,
    options.otlpEndpoint,
    recorder === null ? {} : { onEnd: (span) => recordSpan(span, recorder) },
  );
  const destination = pino.destination({ dest: options.logFile ?? 2, sync: true, mkdir: true });
  const log = pino(
    {
      name: options.service,
      level: options.level,
      timestamp: pino.stdTimeFunctions.isoTime,
      // JSON has nothing of an Error. pino does this for `err` by itself.
      serializers: { error: pino.stdSerializers.err },
    },
    destination,
  );
  return {
    tracer: tracing.tracer,
    metrics: createMetrics(),
    log: recorder === null ? log : recordingLogger(log, recorder, Date.now),
    recorder,
    reopenLog: options.logFile === undefined ? null : () => destination.reopen(),
    setLogLevel: (level) => {
      log.level = level;
    },
    shutdown: () => tracing.shutdown(),
  };
}
