/**
 * Computes the state of one node's dataplane from scratch: simple and slow. `muster policy explain` uses it, and the
 * incremental graph is tested against it.
 */
import type {
  DataplaneHost,
  DataplaneHostEndpoint,
  NetworkPolicy,
  NetworkProfile,
  Node,
  Resource,
  Service,
  Task,
  Tier,
} from "../../proto/gen/messages.ts";
import {
  allowProfile,
  builtInProfile,
  compilePolicy,
  compileProfile,
  type CompiledPolicy,
  type CompiledProfile,
  type SetDefinition,
} from "./compile.ts";
import { endpointMessage, hostEndpointMessage, membersOf, nodeConfig, profilesOf } from "./endpoint.ts";
import {
  hostEndpointFact,
  hostFact,
  servedAt,
  serviceFact,
  taskEndpoints,
  type Chosen,
  type EndpointFact,
} from "./facts.ts";
import { emptyState, type NodeState } from "./node-state.ts";
import { readPolicyObject } from "./objects.ts";
import { matchesSelector } from "./selector.ts";

export interface ClusterFacts {
  readonly endpoints: readonly EndpointFact[];
  /** Services, and tasks with their service's labels: what rules' service selectors choose from. */
  readonly services: readonly Chosen[];
  readonly hosts: readonly DataplaneHost[];
  readonly policies: readonly NetworkPolicy[];
  readonly profiles: readonly NetworkProfile[];
  readonly tiers: readonly Tier[];
  /** Addresses as `host:port`. */
  readonly managers: readonly string[];
}

interface ClusterObjects {
  readonly tasks: Iterable<Task>;
  readonly services: Iterable<Service>;
  readonly nodes: Iterable<Node>;
  readonly resources: Iterable<Resource>;
  readonly managers: Iterable<{ readonly addr: string }>;
}

export function clusterFacts({ tasks, services, nodes, resources, managers }: ClusterObjects): ClusterFacts {
  const serviceById = new Map([...services].map((service) => [service.id, service]));
  const nodeById = new Map([...nodes].map((node) => [node.id, node]));
  const objects = [...resources].map(readPolicyObject).filter((each) => each !== null);
  const endpoints: EndpointFact[] = [];
  const served: Chosen[] = [...serviceById.values()].map(serviceFact);
  for (const task of tasks) {
    const service = serviceById.get(task.serviceId);
    const own = taskEndpoints(task, service, nodeById.get(task.nodeId));
    endpoints.push(...own);
    if (service !== undefined) for (const each of own) served.push(servedAt(service, each));
  }
  for (const each of objects) {
    if (each.kind !== "HostEndpoint") continue;
    const node = findNode([...nodeById.values()], each.object.node);
    const fact = hostEndpointFact(each.object, node);
    if (fact !== null) endpoints.push(fact);
  }
  return {
    endpoints,
    services: served,
    hosts: [...nodeById.values()].map(hostFact).filter((each) => each !== null),
    policies: objects.flatMap((each) => (each.kind === "NetworkPolicy" ? [each.object] : [])),
    profiles: objects.flatMap((each) => (each.kind === "NetworkProfile" ? [each.object] : [])),
    tiers: objects.flatMap((each) => (each.kind === "Tier" ? [each.object] : [])),
    managers: [...managers].map(({ addr }) => addr),
  };
}

/** By id or hostname; of several matches the one with the smallest id. */
function findNode(nodes: readonly Node[], name: string): Node | undefined {
  return nodes
    .toSorted((a, b) => (a.id < b.id ? -1 : 1))
    .find(({ id, description }) => id === name || description?.hostname === name);
}

export function calculateNode(facts: ClusterFacts, nodeId: string): NodeState {
  const state = emptyState();
  state.config = nodeConfig(facts.managers);
  for (const host of facts.hosts) state.hosts.set(host.hostname, host);
  const policies = facts.policies.map(compilePolicy).filter((each) => each !== null);
  const profiles = new Map(facts.profiles.map((each) => [each.name, compileProfile(each)]));
  profiles.set(allowProfile, builtInProfile());
  const tiers = new Map(facts.tiers.map((tier) => [tier.name, tier]));
  const sets = new Map<string, SetDefinition>();
  const use = ({ sets: used }: CompiledPolicy | CompiledProfile): void => {
    for (const definition of used) sets.set(definition.id, definition);
  };
  const useProfiles = (names: readonly string[]): void => {
    for (const name of names) {
      const profile = profiles.get(name);
      if (profile === undefined) continue;
      state.profiles.set(name, profile.message);
      use(profile);
    }
  };
  for (const fact of facts.endpoints) {
    if (fact.nodeId !== nodeId) continue;
    const chosen = policies.filter(({ selector }) => matchesSelector(selector, fact.labels));
    for (const policy of fact.isHost ? chosen : chosen.filter(({ stage }) => stage === "normal")) {
      state.policies.set(policy.key, policy.message);
      use(policy);
    }
    if (fact.isHost) {
      const message: DataplaneHostEndpoint = hostEndpointMessage(fact, chosen, tiers);
      state.hostEndpoints.set(fact.id, message);
      useProfiles(message.profiles);
    } else {
      const names = profilesOf(fact, (name) => profiles.has(name));
      state.endpoints.set(fact.id, endpointMessage(fact, chosen, names, tiers));
      useProfiles(names);
    }
  }
  for (const definition of sets.values()) {
    const members = new Set<string>();
    const from = definition.of === "services" ? facts.services : facts.endpoints;
    for (const chosen of from)
      if (matchesSelector(definition.selector, chosen.labels))
        for (const member of membersOf(definition, chosen)) members.add(member);
    state.sets.set(definition.id, { type: definition.type, members });
  }
  return state;
}
