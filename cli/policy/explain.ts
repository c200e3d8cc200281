/**
 * `muster policy explain A B tcp/80`: the verdict on the first packet of a connection on each side, by the evaluator that
 * drivers are tested against.
 */
import { nodeNames } from "../../machines/node-names.ts";
import { calculateNode, type ClusterFacts } from "../../machines/policy/calculate.ts";
import {
  evaluateEndpoint,
  type Direction,
  type Packet,
  type Verdict,
  type VerdictReason,
} from "../../machines/policy/evaluate.ts";
import { profilesOf } from "../../machines/policy/endpoint.ts";
import type { EndpointFact } from "../../machines/policy/facts.ts";
import type { PolicyObject } from "../../machines/policy/objects.ts";
import { matchesSelector, parseSelector } from "../../machines/policy/selector.ts";
import { parseAddress } from "../../lib/ip-address.ts";
import type { Node } from "../../proto/gen/messages.ts";
import { byAge, nodeName, serviceName } from "../manager-client.ts";
import { taskName } from "../../machines/list-filters.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import { objectsOf, throughHost, unknownPortsOf, type PolicyCluster } from "./cluster.ts";

/** Source or destination of a packet. */
interface Party {
  readonly name: string;
  readonly addresses: readonly string[];
  /** Null: outside the cluster. */
  readonly node: Node | null;
  /** Null: the node itself, or outside. */
  readonly endpoint: EndpointFact | null;
}

interface Side {
  readonly allowed: boolean;
  /** `web.1 on n2, leaving: allowed by policy default/web, egress rule 1`. */
  readonly text: string;
}

interface Explanation {
  readonly allowed: boolean;
  readonly title: string;
  readonly sides: readonly Side[];
  /** Named ports that no endpoint has, and nodes that do not enforce policies. */
  readonly remarks: readonly string[];
}

interface Traffic {
  readonly protocol: string;
  readonly port: number | null;
  readonly icmp: readonly [number, number] | null;
}

const ported = new Set(["tcp", "udp", "sctp", "udplite"]);

/** Parses `tcp/80`, `icmp/8/0`, `icmp`, or a protocol number. Throws UsageError. */
export function parseTraffic(text: string): Traffic {
  const [word = "", first, second] = text.toLowerCase().split("/");
  const isNumber = (value: string | undefined, max: number): boolean =>
    value !== undefined && /^\d{1,5}$/.test(value) && Number(value) <= max;
  if (ported.has(word)) {
    if (!isNumber(first, 65_535) || second !== undefined)
      throw new UsageError(`invalid traffic "${text}": expected ${word}/PORT with a port from 0 to 65535`);
    return { protocol: word, port: Number(first), icmp: null };
  }
  if (word === "icmp" || word === "icmpv6") {
    if ((first !== undefined && !isNumber(first, 254)) || (second !== undefined && !isNumber(second, 255)))
      throw new UsageError(
        `invalid traffic "${text}": expected ${word}/TYPE/CODE with a type up to 254 and a code up to 255`,
      );
    const echo = word === "icmp" ? 8 : 128;
    return { protocol: word, port: null, icmp: [Number(first ?? echo), Number(second ?? 0)] };
  }
  if (first !== undefined || !isNumber(word, 255) || word === "0")
    throw new UsageError(
      `invalid traffic "${text}": expected such as tcp/80, udp/53, sctp/9, icmp/8/0 or a protocol number`,
    );
  return { protocol: word, port: null, icmp: null };
}

export function explain(
  cluster: PolicyCluster,
  facts: ClusterFacts,
  { from, to, traffic: text }: { readonly from: string; readonly to: string; readonly traffic: string },
): Explanation {
  const traffic = parseTraffic(text);
  const [source, destination] = [partyOf(cluster, facts, from), partyOf(cluster, facts, to)];
  const packet = packetBetween(source, destination, traffic);
  const sides = [
    ...sidesOf(cluster, facts, source, "egress", packet),
    ...sidesOf(cluster, facts, destination, "ingress", packet),
  ];
  const allowed = sides.every((side) => side.allowed);
  const title = `${source.name} (${packet.source}) to ${destination.name} (${packet.destination}), ${text}: ${allowed ? "allowed" : "refused"}`;
  const nodes = new Map([source, destination].flatMap(({ node }) => (node === null ? [] : [[node.id, node] as const])));
  const nameOf = nodeNames(cluster.nodes);
  const unenforced = [...nodes.values()]
    .filter(({ id }) => (cluster.reports.get(id)?.state ?? "none") === "none")
    .map(({ id }) => `policies are not enforced on ${nameOf(id)}: it has no dataplane driver`);
  const unknown = [
    ...unknownPortsFor(cluster, facts, source, "egress"),
    ...unknownPortsFor(cluster, facts, destination, "ingress"),
  ];
  return { allowed, title, sides, remarks: [...new Set([...unknown, ...unenforced])] };
}

/** Named ports in the rules of a side's policies and profiles that no endpoint has. */
function unknownPortsFor(cluster: PolicyCluster, facts: ClusterFacts, party: Party, direction: Direction): string[] {
  const { endpoint, node } = party;
  const own =
    endpoint === null ? facts.endpoints.filter((each) => each.isHost && each.nodeId === node?.id) : [endpoint];
  const objects = objectsOf(cluster);
  const hasProfile = (name: string): boolean =>
    objects.some(({ kind, object }) => kind === "NetworkProfile" && object.name === name);
  const isOfParty = (of: PolicyObject): boolean => {
    if (of.kind === "NetworkProfile") return own.some((fact) => profilesOf(fact, hasProfile).includes(of.object.name));
    const chosen = of.kind === "NetworkPolicy" ? parseSelector(of.object.selector) : null;
    return chosen?.kind === "parsed" && own.some(({ labels }) => matchesSelector(chosen.selector, labels));
  };
  return objects
    .filter(isOfParty)
    .flatMap((of) => unknownPortsOf(of, facts))
    .filter((unknown) => unknown.direction === direction)
    .map(({ text }) => text);
}

/** Resolves an address, a task, a service (its oldest task with an address), or a node. Throws UserError. */
function partyOf(cluster: PolicyCluster, facts: ClusterFacts, text: string): Party {
  if (parseAddress(text) !== null) return addressParty(cluster, facts, text);
  const ofTask = (id: string) => facts.endpoints.filter(({ taskId }) => taskId === id);
  const tasks = cluster.tasks.filter(
    (task) =>
      task.id === text ||
      taskName(task) === text ||
      (/\.[^.]+$/.test(text) && taskName(task).startsWith(`${text}.`)) ||
      serviceName(cluster.services.find(({ id }) => id === task.serviceId) ?? noService) === text ||
      (text.length >= 4 && task.id.startsWith(text)),
  );
  for (const task of tasks.toSorted(byAge)) {
    const own = ofTask(task.id);
    const [first] = own;
    if (first === undefined) continue;
    const node = cluster.nodes.find(({ id }) => id === task.nodeId) ?? null;
    return {
      name: shortName(taskName(task)),
      addresses: own.flatMap(({ addresses }) => addresses),
      node,
      endpoint: first,
    };
  }
  if (tasks.length > 0)
    throw new UserError(`${text} has no address: none of its tasks is assigned to a node and attached to a network`);
  const byId = cluster.nodes.filter(({ id }) => id === text);
  const found = byId.length > 0 ? byId : cluster.nodes.filter((each) => nodeName(each) === text);
  if (found.length > 1) throw new UserError(`node ${text} is ambiguous (${found.length} matches found)`);
  const [node] = found;
  if (node === undefined) throw new UserError(`no such task, service, node or address: ${text}`);
  return {
    name: nodeNames(cluster.nodes)(node.id),
    addresses: [node.status?.addr ?? ""].filter((each) => each !== ""),
    node,
    endpoint: null,
  };
}

const noService = { spec: null } as Parameters<typeof serviceName>[0];

/** `web.1.3kd…` → `web.1`. */
function shortName(name: string): string {
  return name.split(".").slice(0, 2).join(".");
}

/** The owner of an address, if it is in the cluster. */
function addressParty(cluster: PolicyCluster, facts: ClusterFacts, address: string): Party {
  const endpoint = facts.endpoints.find((each) => !each.isHost && each.addresses.includes(address)) ?? null;
  const node =
    cluster.nodes.find(({ id, status }) => (endpoint === null ? status?.addr === address : endpoint.nodeId === id)) ??
    null;
  const task = cluster.tasks.find(({ id }) => id === endpoint?.taskId);
  const name =
    task !== undefined ? shortName(taskName(task)) : node !== null ? nodeNames(cluster.nodes)(node.id) : "outside";
  return { name, addresses: [address], node, endpoint };
}

function packetBetween(source: Party, destination: Party, traffic: Traffic): Packet {
  for (const from of source.addresses) {
    const family = parseAddress(from)?.family;
    const to = destination.addresses.find((each) => parseAddress(each)?.family === family);
    if (
      to === undefined ||
      (traffic.protocol === "icmp" && family === 6) ||
      (traffic.protocol === "icmpv6" && family === 4)
    )
      continue;
    return {
      source: from,
      destination: to,
      protocol: traffic.protocol,
      ...(traffic.port === null ? {} : { sourcePort: 40_000, destinationPort: traffic.port }),
      ...(traffic.icmp === null ? {} : { icmpType: traffic.icmp[0], icmpCode: traffic.icmp[1] }),
    };
  }
  throw new UserError(
    `${source.name} and ${destination.name} have no addresses of the same family for ${traffic.protocol}`,
  );
}

function sidesOf(
  cluster: PolicyCluster,
  facts: ClusterFacts,
  party: Party,
  direction: Direction,
  packet: Packet,
): Side[] {
  if (party.node === null) return [];
  const state = calculateNode(facts, party.node.id);
  const on = nodeNames(cluster.nodes)(party.node.id);
  const where = direction === "egress" ? "leaving" : "entering";
  const sideOf = (name: string, verdict: Verdict): Side => ({
    allowed: verdict.allowed,
    text: `${where} ${name} on ${on}: ${reasonText(verdict, direction)}`,
  });
  if (party.endpoint !== null) {
    const address = direction === "egress" ? packet.source : packet.destination;
    return facts.endpoints
      .filter((each) => each.taskId === party.endpoint?.taskId && each.addresses.includes(address))
      .slice(0, 1)
      .flatMap(({ id }) => {
        const endpoint = state.endpoints.get(id);
        return endpoint === undefined ? [] : [sideOf(party.name, evaluateEndpoint(state, endpoint, direction, packet))];
      });
  }
  return [...state.hostEndpoints.keys()].map((id) =>
    sideOf(`${party.name}'s host endpoint ${id}`, throughHost(state, id, direction, packet)),
  );
}

function reasonText({ allowed, by }: Verdict, direction: Direction): string {
  const verdict = allowed ? "allowed" : "refused";
  return `${verdict} ${byText(by, direction)}`;
}

function byText(by: VerdictReason, direction: Direction): string {
  switch (by.kind) {
    case "policy":
      return `by policy ${by.tier}/${by.name}, ${direction} rule ${by.rule + 1}`;
    case "profile":
      return `by profile ${by.name}, ${direction} rule ${by.rule + 1}`;
    case "tier":
      return `at the end of tier ${by.tier}: its policies select the endpoint, but none of their rules match`;
    case "missing":
      return `because the ${by.what} ${by.name} does not exist`;
    case "inactive":
      return "because the endpoint is not active";
    case "failsafe":
      return `by the failsafe port ${by.port}`;
    case "nothing":
      return "by default: no policy applies";
  }
}
