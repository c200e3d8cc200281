/** Whether nodes can still reach the managers under a set of policies. */
import { parseAddress } from "../../lib/ip-address.ts";
import { calculateNode, type ClusterFacts } from "../../machines/policy/calculate.ts";
import type { Direction, Packet } from "../../machines/policy/evaluate.ts";
import type { NodeState } from "../../machines/policy/node-state.ts";
import { DataplaneConfig, type ManagerPlace, type Node } from "../../proto/gen/messages.ts";
import { lazyNodeNames } from "../../machines/node-names.ts";
import { throughHost, type PolicyCluster } from "./cluster.ts";

/** Substitutes for unknown addresses, from the documentation ranges (RFC 5737, RFC 3849). */
const somewhere = { 4: ["192.0.2.1", "203.0.113.1"], 6: ["2001:db8::1", "2001:db8:ffff::1"] } as const;

/**
 * Why nodes could not reach a manager without the failsafe ports; null when they could. Checks every host endpoint of a
 * manager, and outgoing traffic at those of every node, for each address by which nodes may know the manager.
 */
export function cutsOff({ managers, nodes }: PolicyCluster, facts: ClusterFacts): string | null {
  const states = new Map<string, NodeState>();
  const stateOf = (node: Node): NodeState => {
    let state = states.get(node.id);
    if (state === undefined) {
      states.set(node.id, (state = calculateNode(facts, node.id)));
      state.config = DataplaneConfig.create({});
    }
    return state;
  };
  const nameOf = lazyNodeNames(() => nodes);
  for (const place of managers) {
    const manager = nodes.find(({ id }) => id === place.id);
    const [host = "", port = ""] = splitAddress(place.addr);
    if (manager === undefined || host === "") continue;
    for (const address of addressesOf(place, host, manager)) {
      for (const node of nodes) {
        const source = sourceOf(node, address);
        const packet: Packet = {
          source,
          destination: address,
          protocol: "tcp",
          sourcePort: 40_000,
          destinationPort: Number(port),
        };
        const sides: readonly (readonly [Node, Direction])[] = [
          ...(node.id === manager.id ? [] : ([[node, "egress"]] as const)),
          [manager, "ingress"],
        ];
        for (const [at, direction] of sides) {
          const state = stateOf(at);
          for (const id of state.hostEndpoints.keys())
            if (!throughHost(state, id, direction, packet).allowed) {
              const where = host === address ? place.addr : `${place.addr} (${address})`;
              return `${nameOf(node.id)} could not reach the manager ${nameOf(manager.id)} at ${where}: host endpoint ${id} of ${nameOf(at.id)} denies it`;
            }
        }
      }
    }
  }
  return null;
}

/**
 * The address that nodes use; for a name, its addresses as the manager resolved them, or the address that others see the
 * manager at.
 */
function addressesOf({ addresses }: ManagerPlace, host: string, { status }: Node): readonly string[] {
  if (parseAddress(host) !== null) return [host];
  const known = addresses.filter((address) => parseAddress(address) !== null);
  if (known.length > 0) return known;
  const seen = status?.addr ?? "";
  return parseAddress(seen) === null ? [somewhere[4][1], somewhere[6][1]] : [seen];
}

/** The node's own address, if it has one of the family. */
function sourceOf({ status }: Node, destination: string): string {
  const family = parseAddress(destination)?.family ?? 4;
  const own = status?.addr ?? "";
  return parseAddress(own)?.family === family ? own : somewhere[family][0];
}

function splitAddress(address: string): readonly string[] {
  const at = address.lastIndexOf(":");
  return at < 0 ? [] : [address.slice(0, at).replaceAll(/[[\]]/g, ""), address.slice(at + 1)];
}
