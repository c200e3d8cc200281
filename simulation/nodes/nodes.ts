/**
 * All nodes of a simulated world: machines with one agent each, and the operators who start agents, supply tokens and add
 * nodes.
 */
import type { Host } from "../../runtime/host.ts";
import type { SimProcess } from "../../runtime/sim/simulation.ts";
import { NetworkMachine } from "./network-machine.ts";
import { drawClock } from "../clocks.ts";
import { SimDrivers } from "./drivers.ts";
import { AssignedVersions } from "../invariants/sessions.ts";
import { SimMachine, type TaskHabits } from "./machine.ts";
import type { SimManagers } from "../managers/managers.ts";
import { bootNode } from "./node.ts";
import type { SimDataplanes } from "./policies.ts";
import { Repeats } from "./repeats.ts";
import { operatorMs, type Scene } from "../scene.ts";
import type { SimStorage } from "./storage.ts";

/** Interval at which an operator who wants to add a node looks for a manager to read the token from. */
const askAgainMs = 500;

export interface SimAgent {
  readonly process: SimProcess;
  /** The actors of its newest life. */
  host: Host | null;
  readonly machine: SimMachine;
  readonly assigned: AssignedVersions;
  readonly repeats: Repeats;
  /** Null in a run without driver plugins. */
  readonly drivers: SimDrivers | null;
  /** Null in a run without task networks. */
  readonly network: NetworkMachine | null;
  /** Address for packets from other nodes to its tasks. */
  readonly address: string;
  /** It calls managers over NATS instead of gRPC. */
  readonly usesNats: boolean;
}

interface SimNodesOptions {
  readonly managers: SimManagers;
  /** Null in a run without cluster volumes. */
  readonly storage: SimStorage | null;
  /** Null in a run without network policy. */
  readonly dataplanes: SimDataplanes | null;
}

/** Ids of the tasks that run on a node. */
export function runningOn({ drivers, machine }: SimAgent): readonly string[] {
  return drivers === null ? machine.running() : [...machine.running(), ...drivers.running()];
}

export class SimNodes {
  readonly all: SimAgent[] = [];
  readonly #scene: Scene;
  readonly #options: SimNodesOptions;
  readonly #habits: TaskHabits;
  #isHealed = false;

  constructor(scene: Scene, options: SimNodesOptions) {
    this.#scene = scene;
    this.#options = options;
    this.#habits = { ...scene.options.tasks };
  }

  get processes(): readonly SimProcess[] {
    return this.all.map(({ process: each }) => each);
  }

  /** Whether the node calls managers over NATS. */
  usesNats(agent: SimProcess): boolean {
    return this.all.some(({ process: each, usesNats }) => each === agent && usesNats);
  }

  /** The driver plugins of the nodes that have some. */
  get drivers(): readonly SimDrivers[] {
    return this.all.flatMap(({ drivers }) => drivers ?? []);
  }

  add(name: string): SimProcess {
    const { options, simulation } = this.#scene;
    const { dataplanes, managers, storage } = this.#options;
    const { clock, random, trace } = simulation;
    const machine = new SimMachine(name, {
      clock,
      random: random.fork(`machine.${name}`),
      trace,
      habits: this.#habits,
    });
    storage?.serveNode(name);
    const network =
      options.driverOperations + options.networkOperations + options.contentionOperations === 0
        ? null
        : new NetworkMachine(random.fork(`network.${name}`), { failure: options.drivers.networkFailure });
    const drivers =
      options.driverOperations + options.healthOperations === 0
        ? null
        : new SimDrivers(clock, random.fork(`drivers.${name}`), trace, options.drivers, network);
    if (this.#isHealed) {
      drivers?.heal();
      network?.heal();
    }
    // After a lost tail, other records have the same versions.
    const assigned = new AssignedVersions(name, (claim) => {
      if (!this.#scene.isTailLost) this.#scene.fail(claim);
    });
    const chance = this.#isHealed ? 0 : options.repeats;
    const repeats = new Repeats({ clock, random: random.fork(`repeats.${name}`), trace, chance });
    const usesNats = random.fork(`link.${name}`).chance(options.natsNodes);
    const address = `192.0.2.${this.all.length + 1}`;
    let at = random.pick(managers.serving);
    let token = "";
    const agent: SimAgent = {
      process: null as never,
      host: null,
      machine,
      assigned,
      repeats,
      drivers,
      network,
      address,
      usesNats,
    };
    const each = simulation.process(
      name,
      (ports) => {
        // Until it has joined, each start reads the token again.
        token = managers.joinToken() || token;
        if (at.isRetired) at = managers.serving[0] ?? at;
        bootNode(ports, {
          machine,
          drivers,
          trace,
          join: { address: at.address, token },
          onNotJoined: () => {
            if (!ports.clock.alive) return;
            trace.mark("agent.joined.again");
            each.crash();
            clock.schedule(() => each.start(), operatorMs, null);
          },
          network,
          address,
          assigned,
          repeats,
          usesNats,
          storage,
          dataplanes,
          onHost: (host) => (agent.host = host),
          onWrong: (claim) => this.#scene.fail(claim),
          handshake: (address, ...shown) => managers.handshake(name, address, ...shown),
        });
      },
      {
        ...drawClock(this.#scene, name),
        service: "muster-agent",
        onFail: (reason, error) => this.#scene.processFailed(name, reason, error, () => undefined),
      },
    );
    this.all.push(Object.assign(agent, { process: each }));
    return each;
  }

  /** Adds nodes after a while, so that there are tasks to move to them. */
  addLate(): void {
    const { options, simulation } = this.#scene;
    const { clock, trace } = simulation;
    const random = simulation.random.fork("late");
    for (let number = 1; number <= options.lateAgents; number += 1) {
      const join = (): void => {
        if (this.#options.managers.joinToken() === "") {
          clock.schedule(join, askAgainMs, null);
          return;
        }
        this.add(`late${number}`).start();
        trace.mark("agent.joined.late");
      };
      clock.schedule(join, random.between(options.faultsMs / 4, options.faultsMs), null);
    }
  }

  /** Ends everything on the node. */
  losePower(agent: SimProcess): void {
    const lost = this.all.find(({ process: each }) => each === agent);
    lost?.machine.losePower();
    lost?.drivers?.machine.losePower();
    lost?.network?.losePower();
    this.#options.storage?.storage.forgetMounts(agent.name);
  }

  /** The agent's disk predates some starts, of which those that no manager knew of are now unknown to all (S35). */
  forgetStarts(agent: SimProcess, isTold: (taskId: string) => boolean): void {
    this.all.find(({ process: each }) => each === agent)?.drivers?.forgetStarts(isTold);
  }

  /** Tasks and plugins stop failing by themselves. */
  heal(): void {
    this.#isHealed = true;
    for (const { drivers, network, process: each, repeats } of this.all) {
      repeats.heal();
      drivers?.heal();
      network?.heal();
      // The operator restores a removed plugin.
      if (drivers?.areHere === false) each.restart();
    }
    this.#habits.failure = 0;
    this.#habits.refusal = 0;
  }

  /** An agent that was away while all managers it knew were demoted cannot find one: an operator gives it an address. */
  tellOfManagers(): void {
    for (const each of this.processes) this.#scene.simulation.clock.schedule(() => each.restart(), operatorMs, null);
  }
}
