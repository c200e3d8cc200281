/**
 * The incremental calculation of every followed node's state; a change costs only what it affects. The cluster's facts come
 * in, and each view takes the updates for its node.
 *
 * G1: a view's updates always add up to the result of `calculateNode`, whatever the order of changes.
 */
import type { DataplaneHost, NetworkPolicy, NetworkProfile, Tier } from "../../proto/gen/messages.ts";
import {
  allowProfile,
  builtInProfile,
  compilePolicy,
  compileProfile,
  type CompiledPolicy,
  type CompiledProfile,
} from "./compile.ts";
import { defaultProfile } from "./endpoint.ts";
import type { Chosen, EndpointFact } from "./facts.ts";
import { policyKey } from "./node-state.ts";
import { NodeView, type ViewSource } from "./node-view.ts";
import { defaultTier } from "./objects.ts";
import { SelectorIndex } from "./selector-index.ts";
import { SetTable } from "./set-table.ts";

export class PolicyGraph implements ViewSource {
  readonly tiers = new Map<string, Tier>();
  readonly sets = new SetTable();
  readonly hosts = new Map<string, DataplaneHost>();
  /** Addresses as `host:port`, by manager id. */
  readonly managers = new Map<string, string>();
  readonly #endpoints = new Map<string, EndpointFact>();
  readonly #byNode = new Map<string, Set<string>>();
  readonly #policies = new Map<string, CompiledPolicy>();
  /** Policies by the id of their selector. */
  readonly #bySelector = new Map<string, Set<string>>();
  readonly #profiles = new Map<string, CompiledProfile>([[allowProfile, builtInProfile()]]);
  readonly #views = new Map<string, Set<NodeView>>();
  /** Contains only endpoints of followed nodes: matches of other endpoints are not needed. */
  readonly #choices = new SelectorIndex((_, id) => this.#touch(this.#endpoints.get(id)));

  /** Number of comparisons of selectors with labels so far. */
  get asked(): number {
    return this.#choices.asked + this.sets.asked;
  }

  endpoint(id: string): EndpointFact | undefined {
    return this.#endpoints.get(id);
  }

  policy(key: string): CompiledPolicy | undefined {
    return this.#policies.get(key);
  }

  profile(name: string): CompiledProfile | undefined {
    return this.#profiles.get(name);
  }

  chosenBy(id: string): readonly CompiledPolicy[] {
    const chosen: CompiledPolicy[] = [];
    for (const selector of this.#choices.matchedBy(id))
      for (const key of this.#bySelector.get(selector) ?? []) chosen.push(this.#policies.get(key) as CompiledPolicy);
    return chosen;
  }

  /** `onDirty`: called when there is something to take, once until it is taken. */
  follow(nodeId: string, onDirty: () => void): NodeView {
    const view = new NodeView(nodeId, this, onDirty);
    let views = this.#views.get(nodeId);
    if (views === undefined) {
      this.#views.set(nodeId, (views = new Set<NodeView>()));
      for (const id of this.#byNode.get(nodeId) ?? []) this.#choices.setItem(id, this.#labelsOf(id));
    }
    views.add(view);
    for (const id of this.#byNode.get(nodeId) ?? []) view.touchEndpoint(id);
    return view;
  }

  unfollow(view: NodeView): void {
    view.close();
    const views = this.#views.get(view.nodeId);
    views?.delete(view);
    if (views?.size !== 0) return;
    this.#views.delete(view.nodeId);
    for (const id of this.#byNode.get(view.nodeId) ?? []) this.#choices.removeItem(id);
  }

  /** Null: removed. Ids of task endpoints never equal names of host endpoints: only the former contain a slash. */
  setEndpoint(id: string, fact: EndpointFact | null): void {
    const before = this.#endpoints.get(id);
    if (before === undefined && fact === null) return;
    if (fact === null) this.#endpoints.delete(id);
    else this.#endpoints.set(id, fact);
    this.sets.setEndpoint(id, fact);
    if (before !== undefined && before.nodeId !== fact?.nodeId) {
      const others = this.#byNode.get(before.nodeId);
      others?.delete(id);
      if (others?.size === 0) this.#byNode.delete(before.nodeId);
      this.#choices.removeItem(id);
    }
    if (fact !== null) {
      const own = this.#byNode.get(fact.nodeId);
      if (own === undefined) this.#byNode.set(fact.nodeId, new Set([id]));
      else own.add(id);
      if (this.#views.has(fact.nodeId)) this.#choices.setItem(id, fact.labels);
    }
    for (const each of [before, fact]) this.#touch(each ?? undefined);
  }

  /** The addresses of a service itself, or of one of its endpoints. */
  setServed(id: string, served: Chosen | null): void {
    this.sets.setServed(id, served);
  }

  setHost(hostname: string, host: DataplaneHost | null): void {
    if (host === null) this.hosts.delete(hostname);
    else this.hosts.set(hostname, host);
    for (const view of this.#allViews()) view.touchHost(hostname);
  }

  setManager(id: string, addr: string | null): void {
    if (addr === null) this.managers.delete(id);
    else this.managers.set(id, addr);
    for (const view of this.#allViews()) view.touchConfig();
  }

  /** Both versions of one policy, since its tier may change. Null: it does not exist. */
  setPolicy(before: NetworkPolicy | null, after: NetworkPolicy | null): void {
    const old = before === null ? undefined : this.#policies.get(keyOf(before));
    const compiled = after === null ? null : compilePolicy(after);
    const affected = new Set<string>(old === undefined ? [] : this.#choices.matching(old.selectorId));
    if (old !== undefined) {
      this.#policies.delete(old.key);
      const sharing = this.#bySelector.get(old.selectorId);
      sharing?.delete(old.key);
    }
    if (compiled !== null) {
      this.#policies.set(compiled.key, compiled);
      const sharing = this.#bySelector.get(compiled.selectorId);
      if (sharing === undefined) this.#bySelector.set(compiled.selectorId, new Set([compiled.key]));
      else sharing.add(compiled.key);
      this.#choices.addSelector(compiled.selectorId, compiled.selector);
      for (const id of this.#choices.matching(compiled.selectorId)) affected.add(id);
    }
    if (old !== undefined && this.#bySelector.get(old.selectorId)?.size === 0) {
      this.#bySelector.delete(old.selectorId);
      this.#choices.removeSelector(old.selectorId);
    }
    const keys = new Set([old?.key, compiled?.key].filter((each) => each !== undefined));
    for (const view of this.#allViews()) for (const key of keys) view.touchPolicy(key);
    if (old !== undefined && compiled !== null && isPlacedAlike(old, compiled)) return;
    for (const id of affected) this.#touch(this.#endpoints.get(id));
  }

  setProfile(name: string, profile: NetworkProfile | null): void {
    const isKnown = this.#profiles.has(name);
    if (profile === null) this.#profiles.delete(name);
    else this.#profiles.set(name, compileProfile(profile));
    for (const view of this.#allViews()) {
      view.touchProfile(name);
      // Endpoints that name no profile use it only while it exists.
      if (name === defaultProfile && isKnown !== (profile !== null)) view.touchAllEndpoints();
    }
  }

  setTier(name: string, tier: Tier | null): void {
    if (tier === null) this.tiers.delete(name);
    else this.tiers.set(name, tier);
    for (const policy of this.#policies.values())
      if (policy.tier === name)
        for (const id of this.#choices.matching(policy.selectorId)) this.#touch(this.#endpoints.get(id));
  }

  #labelsOf(id: string): EndpointFact["labels"] {
    return this.#endpoints.get(id)?.labels ?? {};
  }

  #touch(fact: EndpointFact | undefined): void {
    if (fact === undefined) return;
    for (const view of this.#views.get(fact.nodeId) ?? []) view.touchEndpoint(fact.id);
  }

  *#allViews(): Iterable<NodeView> {
    for (const views of this.#views.values()) yield* views;
  }
}

function keyOf({ tier, name }: NetworkPolicy): string {
  return policyKey({ tier: tier === "" ? defaultTier : tier, name });
}

/** Whether endpoints' messages are the same for both: only the rules differ. */
function isPlacedAlike(a: CompiledPolicy, b: CompiledPolicy): boolean {
  return (
    a.key === b.key &&
    a.selectorId === b.selectorId &&
    a.order === b.order &&
    a.ingress === b.ingress &&
    a.egress === b.egress &&
    a.stage === b.stage &&
    a.isForward === b.isForward
  );
}
