/** Shows hosts to those who ask for them, and writes every transition of their actors into the trace, if the trace is kept. */
import type { Host } from "../runtime/host.ts";
import type { SimTrace } from "../runtime/sim/trace.ts";

type HostFollower = (host: Host, who: string) => void;

const followers = new WeakMap<SimTrace, HostFollower[]>();

/** `follow` gets each host of the world with that trace, of managers and of nodes, before its first actor. */
export function followHosts(trace: SimTrace, follow: HostFollower): void {
  followers.set(trace, [...(followers.get(trace) ?? []), follow]);
}

/** The transitions taken by all actors of that world from now on, such as `session serving#heartbeat#0`, each with its count. */
export function collectTransitions(trace: SimTrace): ReadonlyMap<string, number> {
  const taken = new Map<string, number>();
  followHosts(trace, (host) => {
    host.observe(({ machine, transitions }) => {
      for (const id of transitions) {
        const name = `${machine.id} ${id}`;
        taken.set(name, (taken.get(name) ?? 0) + 1);
      }
    });
  });
  return taken;
}

export function traceTransitions(host: Host, who: string, trace: SimTrace): void {
  for (const follow of followers.get(trace) ?? []) follow(host, who);
  if (!trace.isKept) return;
  host.observe(({ id, event, states }) => trace.write(who, `${id} ${event.type} -> ${states.join(" ")}`));
}
