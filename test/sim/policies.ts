/**
 * The dataplanes of simulated nodes: each keeps what its agent was told, and looks at every step as a driver would.
 *
 * S40: no step names what is not there: a rule without its set, an endpoint without its policy, a member that came or went
 *      before.
 */
import type { NodeDataplane } from "../../actors/agent/policy-follower.ts";
import { applyUpdate, emptyState, policyKey, type NodeState } from "../../machines/policy/node-state.ts";
import { DataplaneReport, type DataplaneRule, type DataplaneUpdate } from "../../proto/gen/messages.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";

export class SimDataplanes {
  readonly #states = new Map<string, NodeState>();
  readonly #booted = new Set<string>();
  readonly #trace: SimTrace;
  readonly #onWrong: (claim: string) => void;

  constructor(trace: SimTrace, onWrong: (claim: string) => void) {
    this.#trace = trace;
    this.#onWrong = onWrong;
  }

  isServing(name: string): boolean {
    return this.#booted.has(name);
  }

  /** What the node was told in this life of its agent; undefined before it was told anything. */
  stateOf(name: string): NodeState | undefined {
    return this.#states.get(name);
  }

  /** Of one life of an agent, which begins with nothing told. */
  boot(name: string): NodeDataplane {
    this.#states.delete(name);
    this.#booted.add(name);
    return {
      take: (change) => this.#take(name, change),
      onReport: (listener) => {
        listener(DataplaneReport.create({ state: "in-sync" }));
        return () => undefined;
      },
    };
  }

  #take(name: string, change: DataplaneUpdate): void {
    const state = change.fresh ? emptyState() : this.#states.get(name);
    if (state === undefined) return this.#onWrong(`S40: ${name} was told a step before anything`);
    const objection = inexact(state, change);
    applyUpdate(state, change);
    this.#states.set(name, state);
    const wrong = objection ?? dangling(state);
    if (wrong !== null) this.#onWrong(`S40: ${name}: ${wrong}`);
    if (!change.fresh) this.#trace.mark("policy.step");
    if (change.setDeltas.length > 0) this.#trace.mark("policy.members");
    return undefined;
  }
}

function inexact(state: NodeState, { setDeltas }: DataplaneUpdate): string | null {
  for (const { id, added, removed } of setDeltas) {
    const members = state.sets.get(id)?.members;
    if (members === undefined) return `a step of set ${id}, which is not there`;
    if (added.some((each) => members.has(each))) return `a member comes to set ${id} that is there`;
    if (removed.some((each) => !members.has(each))) return `a member goes from set ${id} that is not there`;
  }
  return null;
}

function setsOf({ destination, source }: DataplaneRule): readonly string[] {
  return [source, destination].flatMap((peer) =>
    peer === null ? [] : [...peer.sets, ...peer.notSets, ...peer.portSets, ...peer.notPortSets, ...peer.serviceSets],
  );
}

function dangling(state: NodeState): string | null {
  for (const { egress, ingress } of [...state.policies.values(), ...state.profiles.values()])
    for (const id of [...ingress, ...egress].flatMap(setsOf))
      if (!state.sets.has(id)) return `a rule names set ${id}, which is not there`;
  for (const { id, tiers } of [...state.endpoints.values(), ...state.hostEndpoints.values()])
    for (const { egress, ingress, name: tier } of tiers)
      for (const name of [...ingress, ...egress])
        if (!state.policies.has(policyKey({ tier, name })))
          return `endpoint ${id} names policy ${name}, which is not there`;
  return null;
}
