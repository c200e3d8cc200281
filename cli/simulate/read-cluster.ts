/** Reads `cluster.yaml`: managers, groups of nodes, networks and services in Compose syntax (docs/simulate.md). */
import type { NetworkSpec } from "../../proto/gen/messages.ts";
import type { ClusterPlan, NodePlan, ServicePlan } from "../../simulation/rehearsal/plan.ts";
import { networksOf } from "../stack/convert-resources.ts";
import { interpolatedTree, type Variables } from "../stack/interpolate.ts";
import { child, mapping, under, type MappingNode, type Node } from "../stack/located.ts";
import { defaultNetwork } from "../stack/names.ts";
import { composeFile } from "../stack/schema.ts";
import { check } from "../stack/shape.ts";
import { withLongForms } from "../stack/short-forms.ts";
import { View } from "../stack/view.ts";
import { parseYaml } from "../stack/yaml.ts";
import { networkProblem, portProblem, sameName } from "./conflicts.ts";
import { Fields, mappingAt } from "./fields.ts";
import { Mistakes } from "./mistakes.ts";
import { nodesMax } from "./names.ts";
import { checkNames, groupKeys, nodeDefaults, readGroup } from "./read-nodes.ts";
import { reducedNetwork } from "./reduced-spec.ts";
import { longService, readService } from "./read-service.ts";

/** Default and maximum; more managers make a log slower, not safer. */
const managersDefault = 3;
export const managersMax = 9;
const clusterKeys = ["managers", "nodes", "networks", "services", "volumes", "secrets", "configs", "version"] as const;

/** `file`: its name in errors. Throws UserError with all mistakes. */
export function readCluster(text: string, file: string, variables: Variables): ClusterPlan {
  const mistakes = new Mistakes();
  const root = readTree(text, file, variables, mistakes, "a cluster must be a mapping with 'nodes' and 'services'");
  const fields = new Fields(root, "", clusterKeys, mistakes);
  const managers = fields.whole("managers", managersDefault, [1, managersMax]);
  const nodes = readNodes(fields, mistakes);
  const networks = mistakes.attempt(() => readNetworks(root, mistakes), []);
  const services = readServices(root, mistakes);
  mistakes.report();
  return { managers, nodes, networks: withDefault(networks, services), services };
}

/** Compose files need not define the network `default`. */
function withDefault(networks: readonly NetworkSpec[], services: readonly ServicePlan[]): readonly NetworkSpec[] {
  const isUsed = services.some(({ spec }) => spec.task?.networks.some(({ target }) => target === defaultNetwork));
  if (!isUsed || networks.some(({ annotations }) => annotations?.name === defaultNetwork)) return networks;
  return [
    ...networks,
    ...[...networksOf(new View(undefined, ""), "", [defaultNetwork]).own.values()].map(reducedNetwork),
  ];
}

/** The tree with its variables replaced; reports at once if it cannot be read. */
export function readTree(
  text: string,
  file: string,
  variables: Variables,
  mistakes: Mistakes,
  otherwise: string,
): MappingNode {
  const empty = mapping([], { file, line: 1, column: 1 });
  const tree = mistakes.attempt(() => interpolatedTree(parseYaml(text, file, otherwise), variables), empty);
  mistakes.report();
  return tree.kind === "mapping" ? tree : empty;
}

/** A list of groups, or a number of nodes with the defaults. */
function readNodes(fields: Fields, mistakes: Mistakes): readonly NodePlan[] {
  const node = fields.node("nodes");
  if (node?.kind === "scalar") {
    const count = fields.whole("nodes", 1, [1, nodesMax]);
    return Array.from({ length: count }, (_, at) => defaultNode(`worker-${at + 1}`));
  }
  fields.require("nodes");
  const groups: (ReturnType<Fields["items"]>[number] & { readonly nodes: readonly NodePlan[] })[] = [];
  let count = 0;
  for (const item of fields.items("nodes")) {
    const nodes = readGroup(new Fields(item.node, item.path, groupKeys, mistakes));
    groups.push({ ...item, nodes });
    count += nodes.length;
    if (count > nodesMax) break;
  }
  checkNames(groups, new Set(), mistakes);
  return groups.flatMap(({ nodes }) => nodes);
}

function defaultNode(name: string): NodePlan {
  const { nanoCpus, memoryBytes } = nodeDefaults;
  return { name, labels: {}, nanoCpus: BigInt(nanoCpus), memoryBytes: BigInt(memoryBytes), failures: null };
}

function readNetworks(root: MappingNode, mistakes: Mistakes): readonly NetworkSpec[] {
  const networks = mappingAt(root, "networks");
  if (networks === null) return [];
  const tree = mapping([["networks", networks]], root.at);
  check(tree, composeFile, "");
  const { own } = networksOf(new View(withLongForms(asOwn(tree), "/"), ""), "", [...networks.entries.keys()]);
  const read: NetworkSpec[] = [];
  for (const spec of [...own.values()].map(reducedNetwork)) {
    const name = spec.annotations?.name ?? "";
    const problem = networkProblem(spec, read);
    const at = networks.entries.get(name)?.at ?? networks.at;
    if (problem === null) read.push(spec);
    else mistakes.add(at, under("networks", name), problem);
  }
  return read;
}

/** A rehearsal has no cluster besides: external networks are created as well. */
function asOwn(tree: MappingNode): MappingNode {
  const networks = child(tree, "networks");
  if (networks?.kind !== "mapping") return tree;
  const own = [...networks.entries].map(([name, { value }]) => [name, withoutExternal(value)] as const);
  return mapping([["networks", mapping(own, networks.at)]], tree.at);
}

function withoutExternal(network: Node): Node {
  if (network.kind !== "mapping") return network;
  return { ...network, entries: new Map([...network.entries].filter(([key]) => key !== "external")) };
}

function readServices(root: MappingNode, mistakes: Mistakes): readonly ServicePlan[] {
  const services = mistakes.attempt(() => mappingAt(root, "services"), null);
  const plans: ServicePlan[] = [];
  const names = new Set<string>();
  for (const [name, { at, value }] of services?.entries ?? []) {
    const path = `services.${name}`;
    const same = sameName(name, names);
    if (same !== undefined) mistakes.add(at, path, `has the same name as '${same}' for managers, which ignore case`);
    names.add(name);
    const read = (): ServicePlan => readService(name, longService(name, value, root), path, { root, mistakes });
    const plan = mistakes.attempt(read, null);
    if (plan === null) continue;
    const problem = portProblem(
      plan.spec,
      plans.map(({ spec }) => spec),
    );
    if (problem !== null) mistakes.add(child(value, "ports")?.at ?? at, `${path}.ports`, problem);
    plans.push(plan);
  }
  return plans;
}
