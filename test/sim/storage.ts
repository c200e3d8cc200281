/**
 * The storage of a simulation: one system with its plugin, that managers and nodes reach over the network, and that is
 * slow, refuses, or loses answers while faults are on. It outlives every process.
 */
import type { AgentCsi } from "../../actors/agent/agent-ports.ts";
import {
  CsiControllerService,
  CsiIdentityService,
  CsiNodeService,
  type CsiControllerPublishVolumeRequest,
} from "../../proto/gen/messages.ts";
import type { CsiSockets } from "../../runtime/csi-sockets.ts";
import { RpcError, Status } from "../../runtime/rpc.ts";
import type { SimPorts } from "../../runtime/sim/simulation.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";
import { Storage } from "../support/storage.ts";

export const simPlugin = "sim";
const controllerAddress = "storage";

/** How bad the storage is, while it is. */
export interface StorageFaults {
  readonly delayMsMax: number;
  /** Chances that a call is refused, and that one that was done is not answered. */
  readonly failure: number;
  readonly lostAnswer: number;
  /** Chance that a call hangs for longer than anybody waits. */
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
          throw new RpcError(random.pick([Status.INTERNAL, Status.UNAVAILABLE, Status.ABORTED]), "drawn to fail");
        },
        after: (method) => {
          trace.mark(`storage.${method}`);
          if (!random.chance(this.#faults.lostAnswer)) return;
          trace.mark("storage.answer.lost");
          throw new RpcError(Status.UNAVAILABLE, "drawn to be lost");
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

  /** The plugin's half on a node; for as long as the storage lives. */
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

/** Paths that nobody looks at: what is mounted where, the storage itself knows. */
export function nodeCsi(ports: SimPorts, name: string): AgentCsi {
  return {
    sockets: socketsAt(ports, nodeAddress(name)),
    places: {
      make: (id) => Promise.resolve({ staging: `/${name}/${id}/staged`, target: `/${name}/${id}/published` }),
      remove: () => Promise.resolve(),
    },
  };
}
