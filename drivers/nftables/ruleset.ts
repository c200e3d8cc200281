/**
 * The driver's view of the kernel's state, and the transactions that change it to the desired state: text for `nft -f`, which
 * nft hands to the kernel as one transaction.
 *
 * R1: the kernel always has one complete state: each transaction is all or nothing, including the first.
 * R2: a transaction contains only changes, so its size does not grow with the number of endpoints.
 * R3: after a failure nothing is assumed: the next transaction writes everything.
 * R4: a full rewrite reuses existing chains, sets and maps, whoever created them. While the kernel switches over, a packet in
 *     transit continues in the old rules but sees only the new elements: in a deleted map it would find none and be dropped,
 *     although its connection is allowed before and after.
 */
import { assert } from "../../lib/assert.ts";
import { anyInterface, hostChain, renderHost, renderWorkload } from "./endpoint.ts";
import { renderBase } from "./base.ts";
import { renderEvaluation } from "./evaluation.ts";
import { ownSets, unitKey, type Desired, type Unit } from "./desired.ts";
import { families, IpSetType, setName, type IpSet } from "./ip-set.ts";
import type { Contents } from "./kernel.ts";
import { tableName } from "./names.ts";
import {
  dispatchTables,
  hostMaps,
  OutputBuilder,
  type Chain,
  type DispatchElement,
  type HostMap,
  type Output,
} from "./output.ts";
import { renderPolicy, renderProfile } from "./policy.ts";
import { chainLine, elementLine, installSet, ruleLines, setElements } from "./script.ts";

interface Transaction {
  readonly script: string;
  /** Interfaces of the workloads that it changes. */
  readonly workloads: readonly string[];
  readonly isWhole: boolean;
  /** It may fail if the kernel's state differs from the assumed one. */
  readonly restsOnKernel: boolean;
}

export class Ruleset {
  #desired: Desired;
  readonly #outputs = new Map<string, { readonly unit: Unit; readonly output: Output }>();
  /** Units that refer to a policy or profile, by the unit key of the latter. */
  readonly #referrers = new Map<string, Set<string>>();
  /** The host endpoint of each interface; set by `resolveHosts`. */
  #hostsAt: ReadonlyMap<string, string> = new Map();
  #isWholeNeeded = true;

  constructor(desired: Desired) {
    this.#desired = desired;
  }

  /** The kernel's state is unknown, after a failed transaction or another program's change. R3 */
  distrust(): void {
    this.#isWholeNeeded = true;
  }

  /** The next transaction writes everything. */
  get isWholeNeeded(): boolean {
    return this.#isWholeNeeded;
  }

  get isNeeded(): boolean {
    return this.#isWholeNeeded || this.#desired.isDirty;
  }

  /** Host endpoint ids by interface. */
  resolveHosts(hostsAt: ReadonlyMap<string, string>): void {
    this.#hostsAt = hostsAt;
    this.#desired.mark({ kind: "hosts", key: "" });
  }

  /** Why the rules for an interface's packets are not as main wants them; null if they are. */
  problemAt(unit: Unit): string | null {
    const output = this.#outputs.get(unitKey(unit))?.output;
    if (output === undefined) return null;
    if (output.problem !== null) return output.problem;
    for (const key of [...output.policies.map(policyUnit), ...output.profiles.map(profileUnit)]) {
      const problem = this.#outputs.get(unitKey(key))?.output.problem ?? null;
      if (problem !== null) return problem;
    }
    return null;
  }

  /** Interfaces of the workloads that refer to a policy or profile whose problem the last transaction added or removed. */
  referrersOf(unit: Unit): readonly string[] {
    return [...(this.#referrers.get(unitKey(unit)) ?? [])];
  }

  /** The number of rules in each chain that a check of the kernel must find. */
  expectedRules(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const { output } of this.#outputs.values())
      for (const [name, { lines }] of output.chains) counts.set(name, lines.length);
    return counts;
  }

  /**
   * Null if there is nothing to do. The result counts as applied until `distrust` is called.
   * `found`: the table's contents, for a full rewrite; null: unknown, so the table is deleted first. R4
   */
  next(found: Contents | null): Transaction | null {
    if (!this.isNeeded) return null;
    const names = new Set<string>();
    const changes = this.#render(names);
    const workloads = [...names];
    if (!this.#isWholeNeeded)
      return { script: this.#difference(changes), workloads, isWhole: false, restsOnKernel: true };
    this.#isWholeNeeded = false;
    return { script: this.#whole(found), workloads, isWhole: true, restsOnKernel: found !== null };
  }

  /** Renders marked units; endpoints first, since whatever they refer to must exist, even if it only drops. */
  #render(workloads: Set<string>): Change[] {
    const changes: Change[] = [];
    const order = { workload: 0, hosts: 0, evaluation: 1, policy: 2, profile: 2, base: 3 } as const;
    for (let units = this.#desired.takeDirtyUnits(); units.length > 0; units = this.#desired.takeDirtyUnits()) {
      units.sort((a, b) => order[a.kind] - order[b.kind]);
      for (const unit of units) {
        const key = unitKey(unit);
        const before = this.#outputs.get(key)?.output ?? null;
        const after = this.#outputOf(unit);
        if (after === null) this.#outputs.delete(key);
        else this.#outputs.set(key, { unit, output: after });
        this.#desired.rendered(unit, after?.sets ?? []);
        this.#refer(unit, before, after);
        changes.push({ before, after });
        if (unit.kind === "workload") workloads.add(unit.key);
        if (before?.problem !== after?.problem)
          for (const referrer of this.referrersOf(unit))
            if (referrer.startsWith("workload ")) workloads.add(referrer.slice(9));
        if (unit.kind === "hosts") this.#desired.markBase();
      }
    }
    return changes;
  }

  #outputOf(unit: Unit): Output | null {
    const desired = this.#desired;
    switch (unit.kind) {
      case "policy": {
        const policy = desired.policies.get(unit.key) ?? null;
        if (policy === null && !this.#referrers.has(unitKey(unit))) return null;
        return renderPolicy(unit.key, policy, desired);
      }
      case "profile": {
        const profile = desired.profiles.get(unit.key) ?? null;
        if (profile === null && !this.#referrers.has(unitKey(unit))) return null;
        return renderProfile(unit.key, profile, desired);
      }
      case "workload": {
        const workload = desired.workloadAt(unit.key);
        return workload === null ? null : renderWorkload(workload.endpoint, desired.settings);
      }
      case "evaluation":
        return this.#referrers.has(unitKey(unit))
          ? renderEvaluation(unit.key, unit.evaluation, desired.settings)
          : null;
      case "hosts": {
        const output = new OutputBuilder();
        for (const [interfaceName, id] of this.#hostsAt) {
          const host = desired.hosts.get(id);
          if (host !== undefined) renderHost(host.endpoint, interfaceName, desired.settings, output);
        }
        return output.build();
      }
      case "base":
        return renderBase(desired.settings, {
          hostMaps: this.#mapsOf([...this.#hostsAt.keys()]),
          anyInterfaceMaps: this.#mapsOf(this.#hostsAt.has(anyInterface) ? [anyInterface] : []),
          pools: desired.hasPools && desired.typeOf(ownSets.pools) !== null ? poolSets : null,
          nodes: desired.typeOf(ownSets.nodes) === null ? null : setName(ownSets.nodes, IpSetType.IP, 4),
        });
    }
  }

  /** The maps for which the host endpoints of these interfaces have a chain. */
  #mapsOf(interfaceNames: readonly string[]): ReadonlySet<HostMap> {
    const chains = this.#outputs.get(unitKey({ kind: "hosts", key: "" }))?.output.chains;
    return new Set(hostMaps.filter((map) => interfaceNames.some((name) => chains?.has(hostChain(map, name)))));
  }

  #refer(unit: Unit, before: Output | null, after: Output | null): void {
    const key = unitKey(unit);
    const targets = (output: Output | null): readonly Unit[] =>
      output === null
        ? []
        : [
            ...output.policies.map(policyUnit),
            ...output.profiles.map(profileUnit),
            ...[...output.evaluations].map(([key, evaluation]): Unit => ({ kind: "evaluation", key, evaluation })),
          ];
    const now = new Map(targets(after).map((target) => [unitKey(target), target]));
    for (const target of targets(before)) {
      if (now.has(unitKey(target))) continue;
      const referrers = this.#referrers.get(unitKey(target));
      referrers?.delete(key);
      if (referrers?.size !== 0) continue;
      this.#referrers.delete(unitKey(target));
      this.#desired.mark(target);
    }
    for (const [targetKey, target] of now) {
      const referrers = this.#referrers.get(targetKey);
      if (referrers !== undefined) {
        referrers.add(key);
        continue;
      }
      this.#referrers.set(targetKey, new Set([key]));
      if (!this.#outputs.has(targetKey)) this.#desired.mark(target);
    }
  }

  #difference(changes: readonly Change[]): string {
    const { before, after } = merged(changes);
    const script: string[] = [];
    const gone = this.#setLines(script);
    const added = [...after.chains].filter(([name]) => !before.chains.has(name));
    for (const [name, chain] of added) script.push(chainLine(name, chain));
    const written = [...after.chains].filter(([name, chain]) => !isSameChain(before.chains.get(name), chain));
    for (const [name, chain] of written) {
      if (before.chains.has(name)) script.push(`flush chain inet ${tableName} ${name}`);
      ruleLines(script, name, chain);
    }
    const removed = [...before.chains.keys()].filter((name) => !after.chains.has(name));
    for (const [key, element] of before.elements)
      if (!isSameElement(element, after.elements.get(key))) script.push(elementLine("delete", element));
    for (const [key, element] of after.elements)
      if (!isSameElement(element, before.elements.get(key))) script.push(elementLine("add", element));
    // All are flushed before the first is deleted, since they may refer to each other.
    for (const name of removed) script.push(`flush chain inet ${tableName} ${name}`);
    for (const name of removed) script.push(`delete chain inet ${tableName} ${name}`);
    script.push(...gone, "");
    return script.join("\n");
  }

  /** Sets that are added, changed, or removed; lines that remove sets come last, when no rule names them any more. */
  #setLines(script: string[]): readonly string[] {
    const desired = this.#desired;
    const gone: string[] = [];
    const remove = (set: IpSet): void => {
      for (const family of families) gone.push(`delete set inet ${tableName} ${setName(set.id, set.type, family)}`);
      set.isInstalled = false;
    };
    for (const set of desired.retired.values()) remove(set);
    desired.retired.clear();
    for (const id of desired.takeDirtySets()) {
      const set = desired.sets.get(id);
      if (set === undefined) continue;
      if (!set.isUsable) {
        if (set.isInstalled) remove(set);
      } else if (set.isInstalled) {
        for (const family of families) {
          const { added, removed } = set.takeChange(family);
          const name = setName(set.id, set.type, family);
          setElements(script, "delete", name, removed);
          setElements(script, "add", name, added);
        }
      } else {
        installSet(script, set);
      }
    }
    return gone;
  }

  #whole(found: Contents | null): string {
    const desired = this.#desired;
    desired.retired.clear();
    desired.takeDirtySets();
    const outputs = [...this.#outputs.values()].map(({ output }) => output);
    const chains = new Map(outputs.flatMap((output) => [...output.chains]));
    const sets: string[] = [];
    for (const [name, declaration] of Object.entries(dispatchTables))
      sets.push(`add ${declaration.replace("%s", `inet ${tableName} ${name}`)}`);
    const kept = new Set<string>(Object.keys(dispatchTables));
    for (const set of desired.sets.values()) {
      if (set.isUsable) {
        installSet(sets, set);
        for (const family of families) kept.add(setName(set.id, set.type, family));
      } else set.isInstalled = false;
    }
    const script = [`add table inet ${tableName}`];
    if (found === null) script.push(`delete table inet ${tableName}`, `add table inet ${tableName}`);
    else script.push(...emptied(found, chains, kept));
    script.push(...sets);
    for (const [name, chain] of chains) script.push(chainLine(name, chain));
    for (const [name, chain] of chains) ruleLines(script, name, chain);
    for (const { elements } of outputs)
      for (const element of elements.values()) script.push(elementLine("add", element));
    script.push("");
    return script.join("\n");
  }
}

/** Flushes existing objects, and removes those that are no longer wanted. R4 */
function emptied(
  { chains, sets }: Contents,
  wantedChains: ReadonlyMap<string, Chain>,
  wantedSets: ReadonlySet<string>,
): readonly string[] {
  const gone: string[] = [];
  const script = [...chains.keys()].map((name) => `flush chain inet ${tableName} ${name}`);
  for (const [name, kind] of sets) {
    script.push(`flush ${kind} inet ${tableName} ${name}`);
    if (!wantedSets.has(name)) gone.push(`delete ${kind} inet ${tableName} ${name}`);
  }
  for (const [name, { hook }] of chains)
    if (wantedChains.get(name)?.hook !== hook) gone.push(`delete chain inet ${tableName} ${name}`);
  return [...script, ...gone];
}

interface Change {
  readonly before: Output | null;
  readonly after: Output | null;
}

const policyUnit = (key: string): Unit => ({ kind: "policy", key });
const profileUnit = (key: string): Unit => ({ kind: "profile", key });

const poolSets = {
  masqueraded: [setName(ownSets.masqueraded, IpSetType.NET, 4), setName(ownSets.masqueraded, IpSetType.NET, 6)],
  all: [setName(ownSets.pools, IpSetType.NET, 4), setName(ownSets.pools, IpSetType.NET, 6)],
} as const;

interface Merged {
  readonly chains: Map<string, Chain>;
  readonly elements: Map<string, DispatchElement>;
}

/** The first and last state of everything that the changes concern: a unit may have been rendered twice. */
function merged(changes: readonly Change[]): { readonly before: Merged; readonly after: Merged } {
  const before: Merged = { chains: new Map(), elements: new Map() };
  const after: Merged = { chains: new Map(), elements: new Map() };
  const born = new Set<string>();
  for (const change of changes) {
    for (const [name, chain] of change.before?.chains ?? []) {
      if (!born.has(`c${name}`) && !before.chains.has(name)) before.chains.set(name, chain);
      after.chains.delete(name);
    }
    for (const [key, element] of change.before?.elements ?? []) {
      if (!born.has(`e${key}`) && !before.elements.has(key)) before.elements.set(key, element);
      after.elements.delete(key);
    }
    for (const [name, chain] of change.after?.chains ?? []) {
      if (!before.chains.has(name)) born.add(`c${name}`);
      after.chains.set(name, chain);
    }
    for (const [key, element] of change.after?.elements ?? []) {
      if (!before.elements.has(key)) born.add(`e${key}`);
      after.elements.set(key, element);
    }
  }
  return { before, after };
}

function isSameChain(a: Chain | undefined, b: Chain): boolean {
  assert(a === undefined || a.hook === b.hook, "R1: a chain keeps its hook");
  return (
    a !== undefined && a.lines.length === b.lines.length && a.lines.every((line, index) => line === b.lines[index])
  );
}

function isSameElement(a: DispatchElement, b: DispatchElement | undefined): boolean {
  return b !== undefined && a.verdict === b.verdict;
}
