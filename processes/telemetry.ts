/** The telemetry of a process, set up from its log level and the environment of OpenTelemetry. */
import type { RecordingRing } from "../runtime/recording/ring.ts";
import { createTelemetry, type ProcessTelemetry } from "../runtime/telemetry/telemetry.ts";
import { UserError } from "../lib/user-error.ts";
import { cannotWrite } from "./data-dir.ts";

/** The log goes to `logFile`; null or absent: to standard error. Rejects with UserError if it cannot be written. */
export async function telemetryFor(
  service: string,
  level: string,
  {
    dataDir = null,
    logFile = null,
    recorder = null,
  }: {
    /** If the log file is in the data dir by default: the data dir, to be named in errors. */
    readonly dataDir?: string | null;
    readonly logFile?: string | null;
    readonly recorder?: RecordingRing | null;
  } = {},
): Promise<ProcessTelemetry> {
  try {
    return await createTelemetry({
      service,
      level,
      otlpEndpoint: process.env["OTEL_EXPORTER_OTLP_ENDPOINT"],
      recorder,
      ...(logFile === null ? {} : { logFile }),
    });
  } catch (error) {
    if (dataDir !== null && (error as NodeJS.ErrnoException).syscall !== undefined) throw cannotWrite(dataDir, error);
    if (logFile !== null && (error as NodeJS.ErrnoException).syscall !== undefined)
      throw new UserError(
        `cannot write the log file ${logFile} (${(error as Error).message}): choose another with --log-file`,
        {
          cause: error,
        },
      );
    throw error;
  }
}
