/**
 * How Docker Engines find each other: an engine looks for its peers only on the hosts of the managers list that it has when
 * it first gets the network keys. In a Swarm an engine runs beside each manager; here none need to. So the first messages
 * of a registration also name two of the oldest engines, and later ones do not.
 *
 *   idle ──▶ introducing ──▶ idle | introducing
 *
 * I1: an engine is never named for good. It takes no calls as a manager, and an agent that lost its managers would try it
 *     as often as them.
 * I2: of two engines that register at the same time, one finds the other: who is named is a matter of the log alone.
 */
import { setup } from "xstate";
import { NodeStatus_State, Peer, WeightedPeer, type Node } from "../../proto/gen/messages.ts";
import { effect } from "../effect.ts";

export const gossipLimits = {
  /**
   * How long a registered engine is told of others, at least; at most twice that. In milliseconds. An engine joins its
   * peers within milliseconds of the keys; the rest is for a slow one.
   */
  introductionMs: 30_000,
  /** Engines that one is introduced to: one may have died unnoticed; each refuses a call or two at worst. */
  seedsMax: 2,
} as const;

/** No call is ever meant for an engine: nothing listens there, so one that is made by mistake is refused at once. */
const seedPort = 1;
/** Practically never chosen by an agent that knows a manager of positive weight. */
const seedWeight = -10;
/**
 * A manager's while engines are named beside it. Each end of a session halves it; with SwarmKit's 10 every second attempt
 * to come back went to an engine, with 200 none of ten did (worker protocol §5.7).
 */
export const introducingManagerWeight = 200;

/** Whether it takes part in the gossip of overlay networks: an engine that is up and reachable. */
export function gossips({ status, description }: Node): boolean {
  if (status?.state !== NodeStatus_State.READY || status.addr === "") return false;
  return (description?.engine?.plugins ?? []).some(({ type, name }) => type === "Network" && name === "overlay");
}

/** The one that gossips longer first, by creation; ids settle what is equal. */
export function bySeniority(a: Node, b: Node): number {
  const [at, bt] = [a.meta?.createdAt, b.meta?.createdAt];
  const seconds = (at?.seconds ?? 0) - (bt?.seconds ?? 0) || (at?.nanos ?? 0) - (bt?.nanos ?? 0);
  return seconds || (a.id < b.id ? -1 : 1);
}

/** The eldest of them that may be named: one more than are, since none is introduced to itself. */
export function eldest(nodes: Iterable<Node>): readonly Node[] {
  let found: Node[] = [];
  for (const node of nodes) {
    if (!gossips(node)) continue;
    found.push(node);
    found = found.toSorted(bySeniority).slice(0, gossipLimits.seedsMax + 1);
  }
  return found;
}

/** `known`: hosts that the engine is told of anyway, those of the managers. */
export function seedsFor(node: Node, elders: readonly Node[], known: ReadonlySet<string>): readonly WeightedPeer[] {
  const hosts = new Set<string>();
  const seeds: WeightedPeer[] = [];
  for (const elder of elders) {
    const host = elder.status?.addr ?? "";
    if (elder.id === node.id || host === node.status?.addr || known.has(host) || hosts.has(host)) continue;
    if (seeds.length === gossipLimits.seedsMax) break;
    hosts.add(host);
    const addr = host.includes(":") ? `[${host}]:${seedPort}` : `${host}:${seedPort}`;
    seeds.push(WeightedPeer.create({ peer: Peer.create({ nodeId: elder.id, addr }), weight: seedWeight }));
  }
  return seeds;
}

export type GossipEvent =
  | { readonly type: "engine.registered" }
  /** `left`: engines whose introduction is not over. */
  | { readonly type: "introductions.ended"; readonly left: number };

export const gossipMachine = setup({
  types: { events: {} as GossipEvent },
  actions: {
    /** Sends engines that were told of others long enough ago a message that names managers alone; answered by `introductions.ended`. */
    endIntroductions: effect("endIntroductions"),
    reportUnexpected: effect("reportUnexpected"),
  },
  guards: {
    isDone: (_, { left }: { left: number }) => left === 0,
  },
  delays: { introduction: gossipLimits.introductionMs },
}).createMachine({
  id: "gossip",
  initial: "idle",
  options: { maxIterations: 1_000 },
  on: { "*": { actions: "reportUnexpected" } },
  states: {
    idle: {
      description: "Every engine has had time to find its peers; only managers are announced. I1",
      on: { "engine.registered": "introducing" },
    },
    introducing: {
      description: "Announcing other workers to engines that registered recently. I2",
      on: { "engine.registered": {} },
      after: { introduction: "ending" },
    },
    ending: {
      description: "Removing the other workers from the lists of engines that have had time to find them. I1",
      entry: "endIntroductions",
      on: {
        "engine.registered": {},
        "introductions.ended": [
          { guard: { type: "isDone", params: ({ event }) => event }, target: "idle" },
          { target: "introducing" },
        ],
      },
    },
  },
});
