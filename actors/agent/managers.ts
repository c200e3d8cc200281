/** The managers that an agent knows, in memory and on disk; `machines/agent/managers.ts` decides about them. */
import {
  chooseManager,
  namesSameManagers,
  noteUnreached,
  observeManager,
  replaceManagers,
  type KnownManager,
} from "../../machines/agent/managers.ts";
import { AgentManagers, Peer, WeightedPeer } from "../../proto/gen/messages.ts";
import type { Logger, Random } from "../../runtime/ports/index.ts";
import type { AgentDisk } from "./ports.ts";

const record = "managers";

export class ManagerList {
  readonly #disk: AgentDisk;
  readonly #random: Random;
  readonly #log: Logger;
  #managers: readonly KnownManager[] = [];

  constructor(disk: AgentDisk, random: Random, log: Logger) {
    this.#disk = disk;
    this.#random = random;
    this.#log = log;
  }

  /** Reads the disk. `address` is added: where the node joins, or where an operator says that the managers are now. */
  async load(address: string | null): Promise<void> {
    const saved = await this.#disk.load(record);
    if (saved !== null) {
      this.#managers = AgentManagers.decode(saved).managers.map(({ peer, weight }) => ({
        nodeId: peer?.nodeId ?? "",
        addr: peer?.addr ?? "",
        weight,
        unreached: 0,
      }));
    }
    if (address !== null && !this.#managers.some(({ addr }) => addr === address)) {
      this.#managers = [...this.#managers, { nodeId: "", addr: address, weight: 0, unreached: 0 }];
      await this.#save();
    }
  }

  get size(): number {
    return this.#managers.length;
  }

  choose(): KnownManager | null {
    return chooseManager(this.#managers, this.#random.next());
  }

  observe(manager: KnownManager, weight: number): void {
    this.#managers = observeManager(this.#managers, manager, weight);
  }

  unreached(manager: KnownManager): void {
    this.#managers = noteUnreached(this.#managers, manager);
  }

  /** Replaces the list with that of a session message; writes the disk when the managers differ. */
  replace(listed: readonly WeightedPeer[]): void {
    const peers = listed.flatMap(({ peer, weight }) =>
      peer === null ? [] : [{ nodeId: peer.nodeId, addr: peer.addr, weight }],
    );
    const before = this.#managers;
    this.#managers = replaceManagers(before, peers);
    if (namesSameManagers(before, this.#managers)) return;
    // Losing this write only costs a longer search for a manager after the next start.
    this.#save().catch((error: unknown) => this.#log.error({ error }, "cannot save the list of managers"));
  }

  #save(): Promise<void> {
    const managers = this.#managers.map(({ nodeId, addr, weight }) =>
      WeightedPeer.create({ peer: Peer.create({ nodeId, addr }), weight }),
    );
    return this.#disk.save(record, AgentManagers.encode(AgentManagers.create({ managers })));
  }
}
