/** Writes every transition of a host's actors into the trace, if the trace is kept. */
import type { Host } from "../../runtime/host.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";

export function traceTransitions(host: Host, who: string, trace: SimTrace): void {
  if (!trace.isKept) return;
  host.inspect(({ actorId, event, state }) => trace.write(who, `${actorId} ${event} -> ${JSON.stringify(state)}`));
}
