/** The telemetry of a process, set up from its log level and the environment of OpenTelemetry. */
import { join } from "node:path";
import type { RecordingRing } from "../runtime/recording/ring.ts";
import { createTelemetry, type ProcessTelemetry } from "../runtime/telemetry/telemetry.ts";
import { cannotWrite } from "./data-dir.ts";

/** In a data dir. */
export const logFile = "muster.log";

/** Logs go to standard error for a service, and to a file in the data dir when run at a terminal. Throws UserError. */
export async function telemetryFor(
  service: string,
  level: string,
  {
    logDir = null,
    recorder = null,
  }: { readonly logDir?: string | null; readonly recorder?: RecordingRing | null } = {},
): Promise<ProcessTelemetry> {
  try {
    return await createTelemetry({
      service,
      level,
      otlpEndpoint: process.env["OTEL_EXPORTER_OTLP_ENDPOINT"],
      recorder,
      ...(logDir === null ? {} : { logFile: join(logDir, logFile) }),
    });
  } catch (error) {
    if (logDir !== null && (error as NodeJS.ErrnoException).syscall !== undefined) throw cannotWrite(logDir, error);
    throw error;
  }
}
