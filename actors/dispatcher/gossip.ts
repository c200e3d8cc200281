/**
 * Hosts `machines/dispatcher/gossip.machine.ts`: tracks the eldest engines, and which engines of this manager still get them as gossip
 * peers.
 */
import {
  bySeniority,
  eldest,
  gossipLimits,
  gossipMachine,
  gossips,
  seedsFor,
} from "../../machines/dispatcher/gossip.machine.ts";
import type { Node, WeightedPeer } from "../../proto/gen/messages.ts";
import type { HostedActor } from "../../runtime/host.ts";
import type { Environment, Running } from "../environment.ts";

export class Gossip implements Running {
  readonly #env: Environment;
  readonly #hosted: HostedActor<typeof gossipMachine>;
  /** Recently registered engines, the earliest first; `isTold` once a message contained others. */
  readonly #introduced = new Map<string, { readonly at: number; isTold: boolean }>();
  /** Null when they must be searched again: a walk over all nodes, only after an elder changed. */
  #elders: readonly Node[] | null = null;

  /** `tell`: resends the node's session message. */
  constructor(env: Environment, tell: (nodeId: string) => void) {
    this.#env = env;
    this.#hosted = env.host.start(gossipMachine, `gossip/${env.managerId}`, undefined, {
      effects: {
        endIntroductions: (_, self) => {
          const over = env.clock.monotonic() - gossipLimits.introductionMs;
          for (const [nodeId, { at, isTold }] of this.#introduced) {
            if (at > over) break;
            this.#introduced.delete(nodeId);
            if (isTold) tell(nodeId);
          }
          self.send({ type: "introductions.ended", left: this.#introduced.size });
        },
      },
    });
  }

  /** To be called on a new registration: its process may have no peers yet. */
  introduce(nodeId: string): void {
    this.#introduced.delete(nodeId);
    this.#introduced.set(nodeId, { at: this.#env.clock.monotonic(), isTold: false });
    this.#hosted.send({ type: "engine.registered" });
  }

  /** To be called when any node of the cluster changed or was removed (`node` null). */
  onNode(node: Node | null, old: Node | null): void {
    if (this.#elders === null) return;
    const id = (node ?? old)?.id;
    const isElder = this.#elders.some((elder) => elder.id === id);
    if (isElder) {
      if (node === null || !gossips(node) || node.status?.addr !== old?.status?.addr) this.#elders = null;
      return;
    }
    if (node === null || !gossips(node)) return;
    const youngest = this.#elders.at(-1);
    const isRoom = youngest === undefined || this.#elders.length <= gossipLimits.seedsMax;
    if (isRoom || bySeniority(node, youngest) < 0) this.#elders = null;
  }

  /** The gossip peers to send to this engine now. */
  seeds(node: Node, managerHosts: ReadonlySet<string>): readonly WeightedPeer[] {
    const introduction = this.#introduced.get(node.id);
    if (introduction === undefined || !gossips(node)) return [];
    this.#elders ??= eldest(this.#env.store.all("node"));
    const seeds = seedsFor(node, this.#elders, managerHosts);
    introduction.isTold ||= seeds.length > 0;
    return seeds;
  }

  stop(): void {
    this.#hosted.stop();
  }
}
