/** Writes every transition of a host's actors into the trace, if the trace is kept. */
import type { Host } from "../../runtime/host.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";

export function traceTransitions(host: Host, who: string, trace: SimTrace): void {
  if (!trace.isKept) return;
  host.observe(({ id, event, states }) => trace.write(who, `${id} ${event.type} -> ${states.join(" ")}`));
}
