/** Writes every transition of a host's actors into the trace, if the trace is kept, and shows hosts to those who ask for them. */
import type { Host } from "../runtime/host.ts";
import type { SimTrace } from "../runtime/sim/trace.ts";

type HostFollower = (host: Host, who: string) => void;

const followers = new WeakMap<SimTrace, HostFollower>();

/** `follow` gets each host of the world with that trace, of managers and of nodes, before its first actor. */
export function followHosts(trace: SimTrace, follow: HostFollower): void {
  followers.set(trace, follow);
}

export function traceTransitions(host: Host, who: string, trace: SimTrace): void {
  followers.get(trace)?.(host, who);
  if (!trace.isKept) return;
  host.observe(({ id, event, states }) => trace.write(who, `${id} ${event.type} -> ${states.join(" ")}`));
}
