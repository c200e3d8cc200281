/**
 * Reads policy objects from YAML files in Calico's format. Every error names file, line and key; values are validated by the
 * same checks as in Control.
 */
import {
  DataplaneIcmp,
  DataplaneIcmpCode,
  DataplanePorts,
  HostEndpoint,
  NetworkPolicy,
  NetworkProfile,
  PolicyOrder,
  PolicyPeer,
  PolicyRule,
  PolicySelector,
  Tier,
} from "../../proto/gen/messages.ts";
import { checkPolicyObject } from "../../machines/policy/check.ts";
import { isPolicyKind, policyKinds, type PolicyObject } from "../../machines/policy/objects.ts";
import {
  child,
  mistake,
  textOf,
  under,
  type ListNode,
  type MappingNode,
  type Node,
  type Place,
} from "../stack/located.ts";
import { parseYamlDocuments } from "../stack/yaml.ts";

export interface LocatedObject {
  readonly of: PolicyObject;
  /** Place of a key in the file, or of the nearest enclosing value. */
  placeOf(path: string): Place;
}

const apiVersion = "muster/v1";

/** Throws UserError. `file`: its name in errors. */
export function readPolicies(text: string, file: string): readonly LocatedObject[] {
  const objects = parseYamlDocuments(text, file).map(readObject);
  const seen = new Map<string, Place>();
  for (const { of, placeOf } of objects) {
    const key = `${of.kind} ${of.object.name}`;
    const at = placeOf("metadata.name");
    const before = seen.get(key);
    if (before !== undefined)
      throw mistake(
        at,
        "metadata.name",
        `is a duplicate: line ${before.line} also defines ${of.kind} ${of.object.name}`,
      );
    seen.set(key, at);
  }
  return objects;
}

function readObject(root: MappingNode): LocatedObject {
  known(root, "", ["apiVersion", "kind", "metadata", "spec"]);
  const version = child(root, "apiVersion");
  if (version !== undefined && textOf(version) !== apiVersion)
    throw mistake(version.at, "apiVersion", `must be ${apiVersion}, not '${textOf(version)}'`);
  const kindNode = child(root, "kind");
  const kind = kindNode === undefined ? "" : textOf(kindNode);
  if (!isPolicyKind(kind))
    throw mistake(
      kindNode?.at ?? root.at,
      "kind",
      `must be one of ${Object.keys(policyKinds).join(", ")}, not '${kind}'`,
    );
  const metadata = mapping(
    child(root, "metadata"),
    "metadata",
    root.at,
    kind === "HostEndpoint" ? ["name", "labels"] : ["name"],
  );
  const name = text(metadata, "metadata", "name");
  const spec = child(root, "spec");
  const object = readSpec(kind, name, metadata, spec ?? { ...root, entries: new Map() });
  const placeOf = (path: string): Place => placeIn(root, path);
  const found = checkPolicyObject(object);
  if (found !== null) throw mistake(placeOf(found.path), found.path, found.problem);
  return { of: object, placeOf };
}

/** The place of the deepest existing value on the path. */
function placeIn(root: Node, path: string): Place {
  let [node, at]: [Node | undefined, Place] = [root, root.at];
  for (const [, key, index] of path.matchAll(/([^.[\]]+)|\[(\d+)\]/g)) {
    if (node?.kind === "list" && index !== undefined) node = node.items[Number(index)];
    else if (node?.kind === "mapping" && key !== undefined) {
      const entry = node.entries.get(key);
      if (entry !== undefined) at = entry.at;
      node = entry?.value;
    } else node = undefined;
    if (node === undefined) break;
    if (index !== undefined) at = node.at;
  }
  return at;
}

function readSpec(kind: PolicyObject["kind"], name: string, metadata: MappingNode, node: Node): PolicyObject {
  const path = "spec";
  switch (kind) {
    case "NetworkPolicy":
      return { kind, object: readPolicy(name, node, path) };
    case "NetworkProfile": {
      const spec = mapping(node, path, node.at, ["ingress", "egress"]);
      const object = NetworkProfile.create({
        name,
        ingress: rules(spec, path, "ingress"),
        egress: rules(spec, path, "egress"),
      });
      return { kind, object };
    }
    case "HostEndpoint": {
      const spec = mapping(node, path, node.at, ["node", "interface", "expectedAddresses", "profiles"]);
      const object = HostEndpoint.create({
        name,
        node: text(spec, path, "node"),
        interface: text(spec, path, "interface"),
        expectedAddresses: texts(spec, path, "expectedAddresses"),
        profiles: texts(spec, path, "profiles"),
        labels: labels(child(metadata, "labels"), "metadata.labels"),
      });
      return { kind, object };
    }
    case "Tier": {
      const spec = mapping(node, path, node.at, ["order", "defaultAction"]);
      const object = Tier.create({
        name,
        order: order(spec, path),
        defaultAction: text(spec, path, "defaultAction").toLowerCase(),
      });
      return { kind, object };
    }
  }
}

function readPolicy(name: string, node: Node, path: string): NetworkPolicy {
  const keys = ["tier", "order", "selector", "types", "ingress", "egress", "doNotTrack", "preDNAT", "applyOnForward"];
  const spec = mapping(node, path, node.at, keys);
  const ingress = rules(spec, path, "ingress");
  const egress = rules(spec, path, "egress");
  const preDnat = boolean(spec, path, "preDNAT");
  const types = texts(spec, path, "types").map((each) => each.toLowerCase());
  for (const [at, type] of types.entries())
    if (type !== "ingress" && type !== "egress")
      throw mistake(placeIn(spec, `types[${at}]`), `${path}.types[${at}]`, `must be ingress or egress, not '${type}'`);
  // As in Calico: without any rules, a policy applies to ingress.
  const isGiven = child(spec, "types") !== undefined;
  return NetworkPolicy.create({
    name,
    tier: text(spec, path, "tier"),
    order: order(spec, path),
    selector: text(spec, path, "selector"),
    appliesIngress: isGiven
      ? types.includes("ingress")
      : child(spec, "ingress") !== undefined || child(spec, "egress") === undefined,
    appliesEgress: isGiven ? types.includes("egress") : child(spec, "egress") !== undefined,
    ingress,
    egress,
    doNotTrack: boolean(spec, path, "doNotTrack"),
    preDnat,
    applyOnForward: boolean(spec, path, "applyOnForward"),
  });
}

function rules(spec: MappingNode, path: string, key: string): PolicyRule[] {
  return items(spec, path, key).map((node, at) => rule(node, `${path}.${key}[${at}]`));
}

function rule(node: Node, path: string): PolicyRule {
  const keys = ["action", "ipVersion", "protocol", "notProtocol", "icmp", "notICMP", "source", "destination"];
  const fields = mapping(node, path, node.at, keys);
  return PolicyRule.create({
    action: text(fields, path, "action").toLowerCase(),
    ipVersion: number(fields, path, "ipVersion") ?? 0,
    protocol: text(fields, path, "protocol").toLowerCase(),
    notProtocol: text(fields, path, "notProtocol").toLowerCase(),
    icmp: icmp(child(fields, "icmp"), `${path}.icmp`),
    notIcmp: icmp(child(fields, "notICMP"), `${path}.notICMP`),
    source: peer(child(fields, "source"), `${path}.source`),
    destination: peer(child(fields, "destination"), `${path}.destination`),
  });
}

function icmp(node: Node | undefined, path: string): DataplaneIcmp | null {
  if (node === undefined) return null;
  const fields = mapping(node, path, node.at, ["type", "code"]);
  const type = number(fields, path, "type");
  if (type === null) throw mistake(node.at, path, "requires a type");
  const code = number(fields, path, "code");
  return DataplaneIcmp.create({ type, code: code === null ? null : DataplaneIcmpCode.create({ code }) });
}

function peer(node: Node | undefined, path: string): PolicyPeer | null {
  if (node === undefined) return null;
  const keys = [
    "selector",
    "notSelector",
    "nets",
    "notNets",
    "ports",
    "notPorts",
    "namedPorts",
    "notNamedPorts",
    "serviceSelector",
  ];
  const fields = mapping(node, path, node.at, keys);
  const some = ports(fields, path, "ports");
  const others = ports(fields, path, "notPorts");
  return PolicyPeer.create({
    selector: selector(fields, path, "selector"),
    notSelector: selector(fields, path, "notSelector"),
    services: selector(fields, path, "serviceSelector"),
    nets: texts(fields, path, "nets"),
    notNets: texts(fields, path, "notNets"),
    ports: some.ranges,
    notPorts: others.ranges,
    namedPorts: [...some.names, ...texts(fields, path, "namedPorts")],
    notNamedPorts: [...others.names, ...texts(fields, path, "notNamedPorts")],
  });
}

function selector(fields: MappingNode, path: string, key: string): PolicySelector | null {
  return child(fields, key) === undefined ? null : PolicySelector.create({ text: text(fields, path, key) });
}

/** `80`, `"8000:8100"`, or a port name of a service. */
function ports(
  fields: MappingNode,
  path: string,
  key: string,
): { readonly ranges: DataplanePorts[]; readonly names: string[] } {
  const ranges: DataplanePorts[] = [];
  const names: string[] = [];
  for (const [at, node] of items(fields, path, key).entries()) {
    const word = scalarText(node, `${path}.${key}[${at}]`);
    const match = /^(\d+)(?:[:-](\d+))?$/.exec(word);
    if (match === null && /^[-+\d.:]*$/.test(word))
      throw mistake(
        node.at,
        `${path}.${key}[${at}]`,
        `must be a port, a range such as 8000:8100 or a port name, not '${word}'`,
      );
    if (match === null) {
      names.push(word);
      continue;
    }
    const [first, last] = [Number(match[1]), Number(match[2] ?? match[1])];
    // Checked here because the file has one list for both ports and names.
    if (first > 65_535 || last > 65_535)
      throw mistake(node.at, `${path}.${key}[${at}]`, `must be 0 to 65535, not '${word}'`);
    if (first > last) throw mistake(node.at, `${path}.${key}[${at}]`, `must not start above its end: '${word}'`);
    ranges.push(DataplanePorts.create({ first, last }));
  }
  return { ranges, names };
}

function known(node: MappingNode, path: string, keys: readonly string[]): void {
  for (const [key, { at }] of node.entries)
    if (!keys.includes(key)) throw mistake(at, under(path, key), `is unknown: expected one of ${keys.join(", ")}`);
}

function mapping(node: Node | undefined, path: string, outer: Place, keys: readonly string[]): MappingNode {
  if (node === undefined) throw mistake(outer, path, "is missing");
  if (node.kind === "scalar" && node.value === null)
    return { kind: "mapping", entries: new Map(), at: node.at, tag: null };
  if (node.kind !== "mapping") throw mistake(node.at, path, `must be a mapping with ${keys.join(", ")}`);
  known(node, path, keys);
  return node;
}

function items(fields: MappingNode, path: string, key: string): ListNode["items"] {
  const node = child(fields, key);
  if (node === undefined || (node.kind === "scalar" && node.value === null)) return [];
  if (node.kind !== "list") throw mistake(node.at, `${path}.${key}`, "must be a list");
  return node.items;
}

function scalarText(node: Node, path: string): string {
  if (node.kind !== "scalar" || node.value === null) throw mistake(node.at, path, "must be a single value");
  return textOf(node);
}

function text(fields: MappingNode, path: string, key: string): string {
  const node = child(fields, key);
  return node === undefined ? "" : scalarText(node, `${path}.${key}`);
}

function texts(fields: MappingNode, path: string, key: string): string[] {
  return items(fields, path, key).map((node, at) => scalarText(node, `${path}.${key}[${at}]`));
}

function number(fields: MappingNode, path: string, key: string): number | null {
  const node = child(fields, key);
  if (node === undefined) return null;
  if (node.kind !== "scalar" || typeof node.value !== "number" || !Number.isInteger(node.value) || node.value < 0)
    throw mistake(node.at, `${path}.${key}`, "must be a whole number");
  return node.value;
}

function boolean(fields: MappingNode, path: string, key: string): boolean {
  const node = child(fields, key);
  if (node === undefined) return false;
  if (node.kind !== "scalar" || typeof node.value !== "boolean")
    throw mistake(node.at, `${path}.${key}`, "must be true or false");
  return node.value;
}

function order(fields: MappingNode, path: string): PolicyOrder | null {
  const node = child(fields, "order");
  if (node === undefined) return null;
  if (node.kind !== "scalar" || typeof node.value !== "number")
    throw mistake(node.at, `${path}.order`, "must be a number");
  return PolicyOrder.create({ value: node.value });
}

function labels(node: Node | undefined, path: string): Record<string, string> {
  if (node === undefined) return {};
  if (node.kind !== "mapping") throw mistake(node.at, path, "must be a mapping");
  return Object.fromEntries([...node.entries].map(([key, { value }]) => [key, scalarText(value, under(path, key))]));
}
