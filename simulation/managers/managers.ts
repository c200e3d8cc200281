/** All managers of a simulated world and their operators, who start and unlock them and hand out tokens. */
import type { Credentials, TlsMaterial } from "../../actors/agent/ports.ts";
import type { ManagerLock } from "../../actors/keys/manager-lock.ts";
import { isDemoted } from "../../machines/manager/role.ts";
import { isSameBytes } from "../../machines/same-message.ts";
import { knownLevel } from "../../proto/format-level.ts";
import type { CsiSockets } from "../../runtime/ports/csi-sockets.ts";
import type { Host } from "../../runtime/host.ts";
import type { SimPorts, SimProcess } from "../../runtime/sim/simulation.ts";
import { FutureRecord, LogLoss } from "../../runtime/store/log-break.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import type { Sealing } from "../../runtime/store/seal.ts";
import { snapshotDefaults } from "../../runtime/store/snapshots.ts";
import { drawClock } from "../clocks.ts";
import { BusLedger } from "../invariants/bus.ts";
import { handshakeProblem, joinsTooLate } from "../invariants/certificates.ts";
import { LogMemory } from "../invariants/log.ts";
import type { serveSimJson } from "./json-wire.ts";
import { bootManager, type RunningManager } from "./manager.ts";
import { operatorMs, sentence, supervisorMs, type Scene } from "../scene.ts";
import { unlockWhatIsLocked } from "../workloads/locks.ts";

/** In records: so few that restarted managers load a snapshot. */
const snapshotEveryDefault = 60;

export interface SimManager {
  readonly process: SimProcess;
  readonly address: string;
  running: RunningManager | null;
  /** The actors of its newest life. */
  host: Host | null;
  /** The lock of its current life. */
  lock: ManagerLock | null;
  /** It has exited after a demotion. */
  isRetired: boolean;
  /** Its operator will start it with `--accept-log-loss`. */
  acceptsLogLoss: boolean;
  /** It is started as an older version, without the services that agents need only for Muster's own features. */
  isOlder: boolean;
  /** The highest level of the log's format that its version knows. */
  level: number;
  readonly memory: LogMemory;
}

interface SimManagersOptions {
  /** The controllers of storage plugins, for one life of a manager; null without storage. */
  readonly csi: (ports: SimPorts) => CsiSockets | null;
  /** A manager has a replica that follows the log. */
  readonly onReplica: (name: string, replica: Replica) => void;
  readonly onRetired: () => void;
  /** Records of the log between two snapshots; by default few, so that runs contain many. */
  readonly snapshotEvery?: number;
  /** Compares each message on the bus with those sent, which keeps all in memory; default true. */
  readonly checksBus?: boolean;
  /** Default: the real cipher. */
  readonly sealing?: Sealing;
  /** Default: no JSON API. Passed in, so that a rehearsal does not load the API's modules. */
  readonly serveJson?: typeof serveSimJson | null;
}

export function addressOf(manager: string): string {
  return `${manager}:2377`;
}

export class SimManagers {
  readonly all: SimManager[] = [];
  readonly #scene: Scene;
  readonly #bus: BusLedger;
  readonly #options: SimManagersOptions;
  /** Every unlock key that the operator received, newest first. */
  readonly #unlockKeys: Uint8Array[] = [];

  constructor(scene: Scene, options: SimManagersOptions) {
    this.#scene = scene;
    this.#bus = new BusLedger(
      () => scene.simulation.clock.elapsed,
      (claim) => scene.fail(claim),
    );
    this.#options = options;
  }

  get processes(): readonly SimProcess[] {
    return this.all.map(({ process: each }) => each);
  }

  get areServing(): boolean {
    return this.all.every(({ running }) => running?.isServing() === true);
  }

  /** Those with the desired role manager. */
  get serving(): readonly SimManager[] {
    return this.all.filter(({ isRetired }) => !isRetired);
  }

  /** The manager that leads, as far as it knows; null if none does. */
  get leader(): SimProcess | null {
    const leads = ({ process: each, running }: SimManager): boolean =>
      each.isRunning && !each.isPaused && running?.isLeading() === true;
    return this.all.find(leads)?.process ?? null;
  }

  /** The cluster's id; empty before there is one. */
  organization(): string {
    return this.all[0]?.running?.organization() ?? "";
  }

  /** Empty while no manager answers. */
  joinToken(): string {
    for (const { running } of this.all) {
      const token = running?.joinToken() ?? null;
      if (token !== null) return token;
    }
    return "";
  }

  add(name: string): void {
    const { simulation } = this.#scene;
    const { clock } = simulation;
    const address = addressOf(name);
    const manager: SimManager = {
      process: null as never,
      address,
      running: null,
      host: null,
      lock: null,
      isRetired: false,
      acceptsLogLoss: false,
      isOlder: false,
      level: knownLevel,
      memory: new LogMemory((claim) => this.#scene.demand(name, claim)),
    };
    const process = simulation.process(name, (ports) => this.#boot(ports, manager), {
      ...drawClock(this.#scene, name),
      service: "muster-manager",
      onFail: (reason, error) => {
        // The operator reads why it does not start, and accepts the loss.
        const hasRefused = error instanceof LogLoss && manager.running?.isServing() === false;
        if (hasRefused && manager.running?.store.version === 0) {
          simulation.trace.mark("manager.refused.log");
          manager.acceptsLogLoss = true;
        }
        manager.running = null;
        if (error instanceof FutureRecord && manager.level < knownLevel) {
          // Its supervisor tries again until it is upgraded.
          simulation.trace.mark("manager.refused.level");
          clock.schedule(() => manager.process.start(), supervisorMs, null);
          return;
        }
        this.#scene.processFailed(name, reason, error, () => manager.process.start());
      },
    });
    Object.assign(manager, { process });
    this.all.push(manager);
  }

  #boot(ports: SimPorts, manager: SimManager): void {
    const { clock, trace } = this.#scene.simulation;
    const { name } = ports;
    manager.running = null;
    manager.isRetired = false;
    const { acceptsLogLoss } = manager;
    const { historyRecords } = this.#scene.options;
    manager.acceptsLogLoss = false;
    if (acceptsLogLoss) manager.memory.accept();
    bootManager(ports, {
      acceptsLogLoss,
      isOlder: manager.isOlder,
      level: manager.level,
      onAcknowledged: (version, isMarked) => manager.memory.acknowledge(version, isMarked),
      onServing: (replica) => manager.memory.checkServing(replica),
      address: manager.address,
      trace,
      peers: this.all.map((each) => each.address),
      csi: this.#options.csi(ports),
      busObserver: this.#options.checksBus === false ? null : this.#bus,
      sealing: this.#options.sealing,
      serveJson: this.#options.serveJson ?? null,
      snapshotEvery: this.#options.snapshotEvery ?? snapshotEveryDefault,
      historyRecordsKept: historyRecords === 0 ? snapshotDefaults.historyRecordsKept : historyRecords,
      onLock: (lock) => (manager.lock = lock),
      onHost: (host) => (manager.host = host),
      onRunning: (running) => {
        manager.running = running;
        manager.memory.follow(running.store);
        this.#options.onReplica(name, running.store);
      },
      onWrong: (claim) => this.#scene.fail(claim),
      onBroken: (error) => ports.fail("a broken log", error),
      onDemoted: () => {
        if (!ports.clock.alive) return;
        trace.mark("manager.demoted");
        manager.process.crash();
        manager.isRetired = true;
        manager.running = null;
        manager.lock = null;
        this.#options.onRetired();
      },
      onGivenUp: (error) => {
        if (!ports.clock.alive) return;
        trace.write(name, `gives up: ${sentence(error)}`);
        trace.mark("manager.given.up");
        manager.process.crash();
        clock.schedule(() => manager.process.start(), supervisorMs, null);
      },
    });
  }

  /** S22 */
  handshake(client: string, address: string, ...shown: readonly [Credentials, TlsMaterial]): string | null {
    const server = this.all.find((manager) => manager.address === address);
    const certificate = server?.running?.certificate() ?? null;
    const problem = handshakeProblem(certificate, ...shown);
    if (problem === null) return null;
    // After a lost tail, clients may know roots that no longer exist.
    if (!this.#scene.isTailLost && !joinsTooLate(certificate, ...shown))
      this.#scene.fail(`S22: ${client} and ${address}: ${problem}`);
    return problem;
  }

  /** Those that are an older version. */
  older(): readonly SimProcess[] {
    return this.all.filter(({ isOlder }) => isOlder).map(({ process: each }) => each);
  }

  /** From its next start on. `level`: of the log's format that this version knows. */
  setVersion(process: SimProcess, version: { readonly isOlder: boolean; readonly level: number }): void {
    for (const manager of this.all) if (manager.process === process) Object.assign(manager, version);
  }

  /** The operator starts managers that were promoted again. */
  startPromoted(): void {
    const { clock, trace } = this.#scene.simulation;
    const look = (): void => {
      for (const { isRetired, process: each } of this.all) {
        const isWanted = this.all.some(({ running }) => {
          const node = running?.store.byName("node", each.name);
          return node !== undefined && !isDemoted(node);
        });
        if (!isRetired || !isWanted) continue;
        trace.mark("manager.started.again");
        each.start();
      }
      clock.schedule(look, operatorMs, null);
    };
    clock.schedule(look, operatorMs, null);
  }

  /** Unlocks locked managers after a while, for the whole simulation. */
  unlock(): void {
    const { clock, random, trace } = this.#scene.simulation;
    unlockWhatIsLocked({
      every: (ms, work) => {
        const next = (): void => {
          work();
          clock.schedule(next, ms, null);
        };
        clock.schedule(next, ms, null);
      },
      locks: () =>
        this.all.flatMap(({ process: each, lock }) =>
          lock !== null && each.isRunning && !each.isPaused ? [lock] : [],
        ),
      keys: () => this.#unlockKeys,
      ask: () => this.#askForUnlockKeys(),
      random: random.fork("unlock"),
      mark: (name) => trace.mark(name),
      onWrong: (claim) => this.#scene.fail(claim),
    });
  }

  /** Reads the unlock key at each machine with a serving manager, since a key is known only after it was handed out. */
  #askForUnlockKeys(): void {
    for (const { process: each, running } of this.all) {
      if (running === null || !each.isRunning || each.isPaused || !running.isServing()) continue;
      const key = running.unlockKey();
      const isKnown = key.length === 0 || this.#unlockKeys.some((known) => isSameBytes(known, key));
      if (!isKnown) this.#unlockKeys.unshift(key);
    }
  }
}
