/** SIGHUP: reads the settings again, applies those that a running process can change, and names the others in the log. */
import { UsageError, UserError } from "../../lib/user-error.ts";
import type { ProcessTelemetry } from "../../runtime/telemetry/telemetry.ts";
import type { Rereading } from "../command.ts";
import { logLevelOf } from "./serving-flags.ts";

interface ReloadedValues {
  readonly "log-level"?: string | undefined;
}

/** The same telemetry; `onHangUp` reloads. */
export function reloading(
  telemetry: ProcessTelemetry,
  reread: (() => Rereading<ReloadedValues>) | null,
): ProcessTelemetry & { readonly onHangUp: () => void } {
  return {
    ...telemetry,
    onHangUp() {
      telemetry.reopenLog?.();
      if (reread === null) return;
      try {
        reload(telemetry, reread());
      } catch (error) {
        if (!(error instanceof UsageError || error instanceof UserError)) throw error;
        telemetry.log.error({ err: error }, `not reloaded: ${error.message}`);
      }
    },
  };
}

function reload({ log, setLogLevel }: ProcessTelemetry, { changed, values }: Rereading<ReloadedValues>): void {
  const level = logLevelOf(values);
  const reloaded = changed.filter((name) => (name as string) === "log-level");
  const waiting = changed.filter((name) => !reloaded.includes(name));
  setLogLevel(level);
  log.info({ changed: reloaded, level }, "configuration reloaded");
  if (waiting.length > 0)
    log.warn({ changed: waiting }, `changed settings that need a restart of this process: ${waiting.join(", ")}`);
}
