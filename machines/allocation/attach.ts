/** Attachments: a task's in each of its networks, and a node's in the networks of its tasks. */
import { NetworkAttachment, type NetworkAttachmentConfig, type Node } from "../../proto/gen/messages.ts";
import type { Holders } from "./holders.ts";
import { nameOf, takeBeside, type FoundNetwork, type Networks } from "./networks.ts";
import { blocked, causes, withoutLength, type Blocked } from "./waiting.ts";

export interface PlannedAttachment extends FoundNetwork {
  readonly config: NetworkAttachmentConfig;
}

const nothing: readonly never[] = Object.freeze([]);

/** The networks that the configs refer to, each once; or why one of them is not available. */
export function planAttachments(
  configs: readonly NetworkAttachmentConfig[],
  networks: Networks,
): readonly PlannedAttachment[] | Blocked {
  const planned: PlannedAttachment[] = [];
  for (const config of configs) {
    const found = networks.find(config.target);
    if ("kind" in found) return found;
    const { network, space } = found;
    if (!planned.some((other) => other.network.id === network.id)) planned.push({ network, space, config });
  }
  return planned;
}

/**
 * One attachment with an address for each network; if one cannot be allocated, none is. `kept`: number of addresses to leave
 * in a network.
 */
export function attach(
  plan: readonly PlannedAttachment[],
  kept: (networkId: string) => number,
): readonly NetworkAttachment[] | Blocked {
  if (plan.length === 0) return nothing;
  const attachments: NetworkAttachment[] = [];
  for (const planned of plan) {
    const address = addressFor(planned, kept);
    if (typeof address !== "string") {
      for (const [at, { addresses }] of attachments.entries())
        for (const taken of addresses) plan[at]?.space?.release(taken);
      return address;
    }
    const { network, config } = planned;
    attachments.push(
      NetworkAttachment.create({
        network,
        addresses: address === "" ? nothing : [address],
        aliases: config.aliases,
        driverAttachmentOpts: config.driverAttachmentOpts,
      }),
    );
  }
  return attachments;
}

function addressFor(planned: PlannedAttachment, kept: (networkId: string) => number): string | Blocked {
  const { network, space, config } = planned;
  if (space === null) return "";
  const [exact = ""] = config.addresses;
  if (exact === "") return takeBeside(planned, kept(network.id));
  const taken = space.takeExactly(exact);
  if ("address" in taken) return taken.address;
  return blocked(causes.address(network.id, withoutLength(exact)), `network ${nameOf(network)}: ${taken.problem}`);
}

export interface NodeDecision {
  /** The node's new attachments; null if the current ones are correct. */
  readonly attachments: readonly NetworkAttachment[] | null;
  /** The attachments that could not be allocated. */
  readonly blocked: readonly Blocked[];
}

/** A node has a load balancer address in the ingress network and in each network of its tasks. */
export function decideNode(node: Node, networks: Networks, holders: Holders): NodeDecision {
  const wanted = new Set<string>([networks.ingressTarget, ...holders.needsOf(node.id)]);
  const attachments: NetworkAttachment[] = [];
  for (const attachment of node.attachments) {
    const id = attachment.network?.id ?? "";
    const isHeld = attachment.addresses.every((address) => holders.holds(node.id, id, address));
    if (isHeld && networks.live(id) !== undefined && wanted.delete(id)) attachments.push(attachment);
  }
  const kept = attachments.length;
  const problems: Blocked[] = [];
  for (const id of wanted) {
    const entry = networks.live(id);
    if (entry === undefined || entry.space === null) continue;
    const address = takeBeside(entry, 0);
    if (typeof address !== "string") problems.push(address);
    else attachments.push(NetworkAttachment.create({ network: entry.network, addresses: [address] }));
  }
  if (kept === node.attachments.length && attachments.length === kept) return { attachments: null, blocked: problems };
  holders.noteNode(node.id, attachments);
  return { attachments, blocked: problems };
}
