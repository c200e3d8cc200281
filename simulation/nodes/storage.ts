/**
 * The storage of a simulation: one system with its plugin, reached by managers and nodes over the network. While faults are on
 * it
 * is slow, refuses calls, or loses answers. It outlives every process.
 */
import type { AgentCsi } from "../../actors/agent/ports.ts";
import {
  CsiControllerService,
  CsiIdentityService,
  CsiNodeService,
  type CsiControllerPublishVolumeRequest,
} from "../../proto/gen/messages.ts";
import type { CsiSockets } from "../../runtime/ports/csi-sockets.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { SimPorts } from "../../runtime/sim/simulation.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";
import { Storage } from "./storage-model.ts";

export const simPlugin = "sim";
const controllerAddress = "storage";

/** Faults of the storage, while they are on. */
export interface StorageFaults {
  readonly delayMsMax: number;
  /** Probabilities that a call fails, and that a completed call gets no answer. */
  readonly failure: number;
  readonly lostAnswer: number;
  /** Probability that a call hangs beyond its deadline. */
  readonly hanging: number;
}

/** Longer than a call's deadline. */
const hangMs = 20_000;

export class SimStorage {
  readonly storage: Storage;
  readonly #ports: SimPorts;
  readonly #trace: SimTrace;
  #faults: StorageFaults;

  constructor(ports: SimPorts, trace: SimTrace, faults: StorageFaults) {
    this.#ports = ports;
    this.#trace = trace;
    this.#faults = faults;
    const random = ports.random.fork("weather");
    const wait = (ms: number) => new Promise<void>((resolve) => void ports.clock.after(ms, resolve));
    this.storage = new Storage({
      weather: {
        before: async (method, request) => {
          const { delayMsMax, failure, hanging } = this.#faults;
          this.#trace.write("storage", `${method} ${(request as CsiControllerPublishVolumeRequest).volumeId ?? ""}`);
          await wait(random.chance(hanging) ? hangMs : random.between(0, delayMsMax));
          if (!random.chance(failure)) return;
          trace.mark("storage.failed");
          throw new RpcError(random.pick([Status.INTERNAL, Status.UNAVAILABLE, Status.ABORTED]), "failed by chance");
        },
        after: (method) => {
          trace.mark(`storage.${method}`);
          if (!random.chance(this.#faults.lostAnswer)) return;
          trace.mark("storage.answer.lost");
          throw new RpcError(Status.UNAVAILABLE, "lost by chance");
        },
      },
    });
    ports.rpc.serve(controllerAddress, [
      { service: CsiIdentityService, handlers: this.storage.identity() },
      { service: CsiControllerService, handlers: this.storage.controller() },
    ]);
  }

  heal(): void {
    this.#faults = { delayMsMax: 10, failure: 0, lostAnswer: 0, hanging: 0 };
  }

  /** The plugin's node part, for the lifetime of the storage. */
  serveNode(name: string): void {
    this.#ports.rpc.serve(nodeAddress(name), [
      { service: CsiIdentityService, handlers: this.storage.identity() },
      { service: CsiNodeService, handlers: this.storage.node(name) },
    ]);
  }
}

function nodeAddress(name: string): string {
  return `storage-at-${name}`;
}

function socketsAt(ports: SimPorts, address: string): CsiSockets {
  return {
    names: () => [simPlugin],
    onChange: () => ({ unsubscribe: () => undefined }),
    dial: () => ports.rpc.connect(address, null),
  };
}

export function controllerSockets(ports: SimPorts): CsiSockets {
  return socketsAt(ports, controllerAddress);
}

/** Paths without content: the storage itself records what is mounted where. */
export function nodeCsi(ports: SimPorts, name: string): AgentCsi {
  return {
    sockets: socketsAt(ports, nodeAddress(name)),
    places: {
      make: (id) => Promise.resolve({ staging: `/${name}/${id}/staged`, target: `/${name}/${id}/published` }),
      remove: () => Promise.resolve(),
    },
  };
}
