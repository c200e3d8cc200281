/**
 * How Docker Engines find each other: an engine looks for peers only on the hosts of the managers list that it has when it
 * first gets the network keys. In a Swarm an engine runs beside each manager; here there may be none. So the first messages
 * of a registration also list two of the oldest engines; later messages do not.
 *
 *   idle ──▶ introducing ──▶ idle | introducing
 *
 * I1: an engine is never listed permanently. It serves no manager calls, and an agent that lost its managers would try it as
 *     often as them.
 * I2: if two engines register at the same time, one finds the other: which engines are listed depends only on the log.
 */
import { NodeStatus_State, Peer, WeightedPeer, type Node } from "../../proto/gen/messages.ts";
import { chart, effect } from "../chart.ts";

export const gossipLimits = {
  /**
   * The minimum time, in milliseconds, for which other engines are announced to a registered engine; the maximum is twice
   * that. An engine joins its peers within milliseconds of getting the keys; the rest is for slow ones.
   */
  introductionMs: 30_000,
  /** Engines announced to each other: one may have died unnoticed; each refuses a call or two at worst. */
  seedsMax: 2,
} as const;

/** No call is meant for an engine: nothing listens on this port, so a stray call is refused at once. */
const seedPort = 1;
/** An agent that knows a manager with a positive weight practically never chooses it. */
const seedWeight = -10;
/**
 * A manager's weight while engines are listed beside it. Each end of a session halves it: with SwarmKit's 10, every second
 * reconnection went to an engine; with 200, none of ten did (worker protocol §5.7).
 */
export const introducingManagerWeight = 200;

/** Whether the node takes part in the gossip of overlay networks: an engine that is up and reachable. */
export function gossips({ status, description }: Node): boolean {
  if (status?.state !== NodeStatus_State.READY || status.addr === "") return false;
  return (description?.engine?.plugins ?? []).some(({ type, name }) => type === "Network" && name === "overlay");
}

/** The older node first, by creation time, then by id. */
export function bySeniority(a: Node, b: Node): number {
  const [at, bt] = [a.meta?.createdAt, b.meta?.createdAt];
  const seconds = (at?.seconds ?? 0) - (bt?.seconds ?? 0) || (at?.nanos ?? 0) - (bt?.nanos ?? 0);
  return seconds || (a.id < b.id ? -1 : 1);
}

/** The oldest engines that may be announced: one more than the seeds, because none is announced to itself. */
export function eldest(nodes: Iterable<Node>): readonly Node[] {
  let found: Node[] = [];
  for (const node of nodes) {
    if (!gossips(node)) continue;
    found.push(node);
    found = found.toSorted(bySeniority).slice(0, gossipLimits.seedsMax + 1);
  }
  return found;
}

/** `known`: hosts that the engine is sent anyway, those of the managers. */
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

type GossipEvent =
  | { readonly type: "engine.registered" }
  /** `left`: number of engines whose introduction is not over. */
  | { readonly type: "introductions.ended"; readonly left: number };

export const gossipMachine = chart({
  types: { events: {} as GossipEvent },
  effects: {
    /**
     * Sends a message with only managers to engines that were introduced long enough ago; answered by `introductions.ended`.
     */
    endIntroductions: effect(),
  },
  guards: {
    isDone: (_, { left }: { left: number }) => left === 0,
  },
  delays: { introduction: gossipLimits.introductionMs },
  shows: { events: ["left"] },
}).createMachine({
  id: "gossip",
  initial: "idle",
  states: {
    idle: {
      description: "Every engine has had time to find its peers; only managers are announced. I1",
      meta: { waitingFor: "an engine to register", wokenBy: { "engine.registered": "its registration" } },
      on: { "engine.registered": "introducing" },
    },
    introducing: {
      description: "Announcing other workers to engines that registered recently. I2",
      meta: {
        waitingFor: "engines that registered recently to find their peers",
        wokenBy: { introduction: "the end of their introduction" },
      },
      ignore: ["engine.registered"],
      after: { introduction: "ending" },
    },
    ending: {
      description: "Removing the other workers from the lists of engines that have had time to find them. I1",
      meta: {
        waitingFor: "the dispatcher, to send the shorter lists",
        wokenBy: { "introductions.ended": "the sent lists" },
      },
      entry: "endIntroductions",
      ignore: ["engine.registered"],
      on: {
        "introductions.ended": [
          { guard: { type: "isDone", params: ({ event }) => event }, target: "idle" },
          { target: "introducing" },
        ],
      },
    },
  },
});
