/** Names of ports in rules that nothing has: such a rule matches nothing, and mostly somebody has mistyped a name. */
import type { NetworkPolicy, NetworkProfile, PolicyPeer, PolicyRule } from "../../proto/gen/messages.ts";
import type { ClusterFacts } from "./calculate.ts";
import type { Direction } from "./evaluate.ts";
import type { Chosen } from "./facts.ts";
import { matchesSelector, parseSelector, type Selector } from "./selector.ts";

export interface UnknownPort {
  readonly direction: Direction;
  /** A sentence without its end. */
  readonly text: string;
}

/** `of`: how the object is called in front of people, such as `policy db`. */
export function unknownPorts(
  of: string,
  { egress, ingress }: Pick<NetworkPolicy | NetworkProfile, "egress" | "ingress">,
  facts: Pick<ClusterFacts, "endpoints" | "services">,
): UnknownPort[] {
  const everybody: readonly Chosen[] = [...facts.endpoints, ...facts.services];
  const find = (direction: Direction, rules: readonly PolicyRule[]): UnknownPort[] =>
    rules.flatMap((rule, index) =>
      [rule.source, rule.destination].flatMap((peer) =>
        unknownIn(rule, peer, everybody).map((what) => ({
          direction,
          text: `${of}, ${direction} rule ${index + 1} names the port ${what}`,
        })),
      ),
    );
  return [...find("ingress", ingress), ...find("egress", egress)];
}

function unknownIn(rule: PolicyRule, peer: PolicyPeer | null, everybody: readonly Chosen[]): string[] {
  if (peer === null) return [];
  const chosen = parseSelector(peer.selector?.text ?? "");
  // What cannot be read is refused elsewhere.
  if (chosen.kind === "invalid") return [];
  const protocol = rule.protocol.toUpperCase();
  const isUnknown = (name: string): boolean =>
    !everybody.some((each) => has(each, name, rule.protocol, chosen.selector));
  const who = peer.selector === null ? "no service" : "no service that its selector chooses";
  const missing = `and ${who} publishes a ${protocol} port of that name`;
  return [
    ...peer.namedPorts
      .filter(isUnknown)
      .map(
        (name) =>
          `${name}, ${missing}: ${peer.ports.length > 0 ? "only its other ports match" : "the rule matches nothing"} until one does`,
      ),
    ...peer.notNamedPorts.filter(isUnknown).map((name) => `${name}, ${missing}: it leaves out nothing until one does`),
  ];
}

function has({ labels, ports }: Chosen, name: string, protocol: string, selector: Selector): boolean {
  return ports.some((port) => port.name === name && port.protocol === protocol) && matchesSelector(selector, labels);
}
