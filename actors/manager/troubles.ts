/**
 * Keeps the troubles of a process (`machines/manager/troubles.ts`), logs when they start and end, and exports them as a metric.
 */
import { causeOf, cleared, kindName, raised } from "../../machines/manager/troubles.ts";
import type { Trouble, Trouble_Kind } from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import type { Clock, Telemetry } from "../../runtime/ports/index.ts";
import type { TroubleReport, Troubles } from "../../runtime/ports/troubles.ts";

export function createTroubles({
  clock,
  telemetry,
}: {
  readonly clock: Clock;
  readonly telemetry: Telemetry;
}): Troubles {
  const gauge = telemetry.metrics.gauge("muster_trouble", "1 while a trouble of this kind exists.");
  let troubles: readonly Trouble[] = [];
  const isThere = (kind: Trouble_Kind): boolean => troubles.some((trouble) => trouble.kind === kind);
  return {
    raise: (report: TroubleReport) => {
      const wasThere = isThere(report.kind);
      troubles = raised(troubles, { ...report, at: timestampOf(clock.now()) });
      if (wasThere) return;
      const kind = kindName(report.kind);
      gauge.set(1, { kind });
      const fields = { kind, sentence: report.sentence };
      if (report.blocking) telemetry.log.error(fields, "trouble: no change can be written");
      else telemetry.log.warn(fields, "trouble");
    },
    clear: (kind) => {
      if (!isThere(kind)) return;
      troubles = cleared(troubles, kind);
      gauge.set(0, { kind: kindName(kind) });
      telemetry.log.info({ kind: kindName(kind) }, "trouble is over");
    },
    all: () => troubles,
    cause: () => causeOf(troubles),
  };
}
