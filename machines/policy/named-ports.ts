/** Finds port names in rules that no service has: such a rule matches nothing, usually because of a typo. */
import type { NetworkPolicy, NetworkProfile, PolicyPeer, PolicyRule } from "../../proto/gen/messages.ts";
import type { ClusterFacts } from "./calculate.ts";
import type { Direction } from "./evaluate.ts";
import type { Chosen } from "./facts.ts";
import { matchesSelector, parseSelector, type Selector } from "./selector.ts";

export interface UnknownPort {
  readonly direction: Direction;
  /** A sentence without its full stop. */
  readonly text: string;
}

/** `of`: the object's display name, such as `policy db`. */
export function unknownPorts(
  of: string,
  { egress, ingress }: Pick<NetworkPolicy | NetworkProfile, "egress" | "ingress">,
  facts: Pick<ClusterFacts, "endpoints" | "services">,
): UnknownPort[] {
  const candidates: readonly Chosen[] = [...facts.endpoints, ...facts.services];
  const find = (direction: Direction, rules: readonly PolicyRule[]): UnknownPort[] =>
    rules.flatMap((rule, index) =>
      [rule.source, rule.destination].flatMap((peer) =>
        unknownIn(rule, peer, candidates).map((what) => ({
          direction,
          text: `${of}, ${direction} rule ${index + 1} names the port ${what}`,
        })),
      ),
    );
  return [...find("ingress", ingress), ...find("egress", egress)];
}

function unknownIn(rule: PolicyRule, peer: PolicyPeer | null, candidates: readonly Chosen[]): string[] {
  if (peer === null) return [];
  const chosen = parseSelector(peer.selector?.text ?? "");
  // Invalid selectors are refused elsewhere.
  if (chosen.kind === "invalid") return [];
  const protocol = rule.protocol.toUpperCase();
  const isUnknown = (name: string): boolean =>
    !candidates.some((each) => has(each, name, rule.protocol, chosen.selector));
  const who = peer.selector === null ? "no service" : "no service that its selector chooses";
  const missing = `and ${who} publishes a ${protocol} port of that name`;
  return [
    ...peer.namedPorts
      .filter(isUnknown)
      .map(
        (name) =>
          `${name}, ${missing}: ${peer.ports.length > 0 ? "only its other ports match" : "the rule matches nothing"} until one does`,
      ),
    ...peer.notNamedPorts.filter(isUnknown).map((name) => `${name}, ${missing}: it excludes nothing until one does`),
  ];
}

function has({ labels, ports }: Chosen, name: string, protocol: string, selector: Selector): boolean {
  return ports.some((port) => port.name === name && port.protocol === protocol) && matchesSelector(selector, labels);
}
