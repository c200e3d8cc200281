/** The contents of a SessionMessage, and which changes require a new one. */
import {
  type Cluster,
  Node,
  Peer,
  SessionMessage,
  WeightedPeer,
  type EncryptionKey,
  type Manager,
} from "../../proto/gen/messages.ts";
import { isSameBytes } from "../same-message.ts";
import { introducingManagerWeight } from "./gossip.machine.ts";
import { sendableKeys, sendableNode } from "../orchestration/task-check.ts";

/**
 * SwarmKit's weight for each manager. An agent that ended a session with a manager lowers its weight and so tries another
 * manager first, as intended. The weight is higher while engines are listed beside managers
 * (`machines/dispatcher/gossip.machine.ts`).
 */
export const managerWeight = 10;

/** The part that the messages of all nodes share. */
export interface SharedPart {
  readonly managers: readonly WeightedPeer[];
  /** The managers' hosts, without ports. */
  readonly hosts: ReadonlySet<string>;
  readonly keys: readonly EncryptionKey[];
  readonly rootCa: Uint8Array;
  /** The encoded part: equal for equal parts. */
  readonly bytes: Uint8Array;
}

/** `own` is always listed, whatever the log says: an agent that gets an empty list can never reconnect (trap 3). */
export function sharedPart(
  own: { readonly id: string; readonly addr: string },
  managers: Iterable<Manager>,
  cluster: Cluster | undefined,
): SharedPart {
  const addresses = new Map<string, string>();
  for (const manager of managers) if (manager.alive && manager.addr !== "") addresses.set(manager.id, manager.addr);
  addresses.set(own.id, own.addr);
  const sorted = [...addresses].sort(([a], [b]) => (a < b ? -1 : 1));
  const part = {
    managers: sorted.map(([nodeId, addr]) =>
      WeightedPeer.create({ peer: Peer.create({ nodeId, addr }), weight: managerWeight }),
    ),
    keys: sendableKeys(cluster?.networkBootstrapKeys ?? []),
    rootCa: cluster?.rootCa?.caCert ?? new Uint8Array(),
  };
  const bytes = SessionMessage.encode(
    SessionMessage.create({ managers: part.managers, networkBootstrapKeys: part.keys, RootCA: part.rootCa }),
  );
  return { ...part, hosts: new Set(sorted.map(([, addr]) => hostOf(addr))), bytes };
}

function hostOf(addr: string): string {
  const host = addr.slice(0, addr.lastIndexOf(":"));
  return host.startsWith("[") ? host.slice(1, -1) : host;
}

function beside(managers: readonly WeightedPeer[], seeds: readonly WeightedPeer[]): readonly WeightedPeer[] {
  if (seeds.length === 0) return managers;
  return [...managers.map((manager) => WeightedPeer.patch(manager, { weight: introducingManagerWeight })), ...seeds];
}

/** `seeds`: engines to list beside the managers while the node is being introduced to them. */
export function sessionMessage(
  sessionId: string,
  node: Node,
  shared: SharedPart,
  seeds: readonly WeightedPeer[],
): SessionMessage {
  return SessionMessage.create({
    sessionId,
    node: sendableNode(node),
    managers: beside(shared.managers, seeds),
    networkBootstrapKeys: shared.keys,
    RootCA: shared.rootCa,
  });
}

/**
 * Whether the agent would react to the change of its node. It ignores status and meta, and wrote the description itself; role
 * and certificate make it renew, attachments give it networks, and it shows the spec.
 */
export function concernsAgent(old: Node, node: Node): boolean {
  if (
    old.spec === node.spec &&
    old.certificate === node.certificate &&
    old.attachments === node.attachments &&
    old.managerStatus === node.managerStatus &&
    old.role === node.role &&
    old.VXLANUDPPort === node.VXLANUDPPort
  ) {
    return false;
  }
  return !isSameBytes(Node.encode(comparable(old)), Node.encode(comparable(node)));
}

function comparable(node: Node): Node {
  return Node.patch(node, { status: null, meta: null, description: null });
}
