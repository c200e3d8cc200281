/** Why no node can run a task: in SwarmKit's words (manager semantics §4.2) for the task's status, in more detail for `why`. */
import { driversOf, networkProblemOf } from "../driver/labels.ts";
import { containerDriver } from "../driver/container-task.ts";
import { enginePlugin, meshPlugin, missingPlugin, Verdict, verdictCount, type Demand } from "./filters.ts";
import { bytesText } from "../bytes-text.ts";
import { meetsConstraint } from "./constraints.ts";
import type { NodeInfo } from "./tracked.ts";

const unseen = 255;

/** The verdict of each node on a group, by the node's place; updated as nodes change. */
export class Tally {
  #verdicts: Uint8Array;
  readonly #counts = new Uint32Array(verdictCount);

  /** `places`: initial capacity; grows on demand. */
  constructor(places = 0) {
    this.#verdicts = new Uint8Array(places).fill(unseen);
  }

  /** The verdict of the node at the place; undefined if it was not judged, or is removed. */
  verdict(place: number): Verdict | undefined {
    const verdict = this.#verdicts[place];
    return verdict === unseen ? undefined : (verdict as Verdict | undefined);
  }

  count(verdict: Verdict): number {
    return this.#counts[verdict] as number;
  }

  /** Removes the verdict of a removed node. */
  drop(place: number): void {
    const old = this.verdict(place);
    if (old === undefined) return;
    this.#counts[old] = this.count(old) - 1;
    this.#verdicts[place] = unseen;
  }

  set(place: number, verdict: Verdict): void {
    if (place >= this.#verdicts.length) {
      const grown = new Uint8Array(Math.max(16, 2 * this.#verdicts.length, place + 1)).fill(unseen);
      grown.set(this.#verdicts);
      this.#verdicts = grown;
    }
    const old = this.#verdicts[place] as number;
    if (old === verdict) return;
    if (old !== unseen) this.#counts[old] = (this.#counts[old] as number) - 1;
    this.#verdicts[place] = verdict;
    this.#counts[verdict] = (this.#counts[verdict] as number) + 1;
  }

  /** Status.err of a task that no node can run. */
  text(): string {
    const parts = this.#parts();
    return parts === "" ? "no suitable node" : `no suitable node (${parts})`;
  }

  #parts(): string {
    const failed: { readonly verdict: Verdict; readonly nodes: number }[] = [];
    for (let verdict = 1; verdict < verdictCount; verdict += 1) {
      const nodes = this.#counts[verdict] as number;
      if (nodes > 0) failed.push({ verdict: verdict as Verdict, nodes });
    }
    // Ties keep the order of the filters: the sort is stable.
    failed.sort((a, b) => b.nodes - a.nodes);
    return failed.map(({ verdict, nodes }) => verdictText(verdict, nodes)).join("; ");
  }
}

/**
 * Status.err of a task created for a particular node: SwarmKit's text, the node and what it lacks. Omits what is free there,
 * which would change the text whenever a task starts or ends. `name`: the node's display name.
 */
export function presetText(verdict: Verdict, demand: Demand, info: NodeInfo | undefined, name: string): string {
  const text = verdictText(verdict, 1);
  if (info === undefined) return text;
  const lacking = verdict === Verdict.resources ? wantsOf(demand) : detail(verdict, demand, info);
  return `${text} (${name}: ${lacking})`;
}

/** The filter's text for this number of nodes. */
export function verdictText(verdict: Verdict, nodes: number): string {
  const on = nodes === 1 ? "on 1 node" : `on ${nodes} nodes`;
  switch (verdict) {
    case Verdict.fits:
      return "";
    case Verdict.notReady:
      return nodes === 1 ? "1 node not available for new tasks" : `${nodes} nodes not available for new tasks`;
    case Verdict.resources:
      return `insufficient resources ${on}`;
    case Verdict.plugin:
      return `missing plugin ${on}`;
    case Verdict.constraint:
      return `scheduling constraints not satisfied ${on}`;
    case Verdict.platform:
      return `unsupported platform ${on}`;
    case Verdict.hostPort:
      return `host-mode port already in use ${on}`;
    case Verdict.maxReplicas:
      return "max replicas per node limit exceed";
    case Verdict.volumes:
      return `cannot fulfill requested CSI volume mounts ${on}`;
  }
}

/** A node's verdict with the values that decided it. `name`: the node's display name. */
export function describeVerdict(verdict: Verdict, demand: Demand, info: NodeInfo, name: string): string {
  return `node ${name}: ${detail(verdict, demand, info)}`;
}

function detail(verdict: Verdict, demand: Demand, info: NodeInfo): string {
  switch (verdict) {
    case Verdict.fits:
      return "fits";
    case Verdict.notReady:
      return "is not READY and ACTIVE";
    case Verdict.resources:
      return shortages(demand, info).join(", ");
    case Verdict.plugin:
      return lackOf(missingPlugin(demand, info) ?? "", info);
    case Verdict.constraint: {
      const broken = demand.constraints.find(
        (constraint) => info.node !== null && !meetsConstraint(constraint, info.node),
      );
      return `does not meet ${broken?.text}`;
    }
    case Verdict.platform: {
      const { architecture, os } = info.node?.description?.platform ?? { architecture: "?", os: "?" };
      return `runs ${os}/${architecture}`;
    }
    case Verdict.hostPort:
      return "another task uses one of its host ports";
    case Verdict.maxReplicas:
      return `has ${info.activeOf(demand.serviceId)} tasks of the service, the maximum per node is ${demand.maxReplicas}`;
    case Verdict.volumes:
      return `cannot mount cluster volume ${demand.volumes.map(({ source }) => source).join(", ")}`;
  }
}

/** Distinguishes an unhealthy driver from a missing one. */
function lackOf(plugin: string, { node }: NodeInfo): string {
  const labels = node?.description?.engine?.labels ?? {};
  if (plugin === meshPlugin) return "has no routing mesh: publish the ports with mode=host";
  const network = networkProblemOf(labels);
  if (plugin.startsWith("Network/") && network !== "") return `cannot create networks for tasks: ${network}`;
  const kind = plugin === enginePlugin ? containerDriver : plugin.replace(/^Driver\//, "");
  const driver = driversOf(labels).find((each) => each.kind === kind);
  if (driver === undefined && plugin === enginePlugin) return "cannot run containers: it has no docker driver";
  if (driver === undefined) return `lacks ${plugin}`;
  return `its driver ${driver.kind} is ${driver.health}${driver.reason === "" ? "" : `: ${driver.reason}`}`;
}

function wantsOf({ generic, memoryBytes, nanoCpus }: Demand): string {
  const wants: string[] = [];
  if (nanoCpus > 0) wants.push(`${nanoCpus / 1e9} CPUs`);
  if (memoryBytes > 0) wants.push(`${bytesText(memoryBytes)} of memory`);
  for (const { kind, count } of generic) wants.push(`${count} ${kind}`);
  return `${wants.join(", ")} requested`;
}

function shortages(demand: Demand, info: NodeInfo): readonly string[] {
  const short: string[] = [];
  if (demand.nanoCpus > Math.max(0, info.freeNanoCpus))
    short.push(`${demand.nanoCpus / 1e9} CPUs requested, ${info.freeNanoCpus / 1e9} free`);
  if (demand.memoryBytes > Math.max(0, info.freeMemoryBytes))
    short.push(shortOfMemory(demand.memoryBytes, Math.max(0, info.freeMemoryBytes)));
  for (const { kind, count } of demand.generic) {
    const free = info.generic?.free(kind) ?? 0;
    if (free < count) short.push(`${count} ${kind} requested, ${free} free`);
  }
  return short;
}

/** In bytes if the rounded values would look equal. */
function shortOfMemory(wanted: number, free: number): string {
  const [wants, has] = [bytesText(wanted), bytesText(free)];
  return wants === has
    ? `${wanted} bytes of memory requested, ${free} free`
    : `${wants} of memory requested, ${has} free`;
}
