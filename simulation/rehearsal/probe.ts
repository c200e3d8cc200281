/** A user who writes at the managers all the time, to see when they cannot take a write. */
import {
  Annotations,
  ConfigSpec,
  ControlService,
  CreateConfigRequest,
  RemoveConfigRequest,
} from "../../proto/gen/messages.ts";
import { RpcError } from "../../runtime/ports/rpc.ts";
import type { ProcessClock } from "../../runtime/sim/clock.ts";
import type { Requests } from "./requests.ts";

const { CreateConfig, RemoveConfig } = ControlService.methods;

/** Interval between two writes, in milliseconds. */
export const probeMs = 1_000;

export class Probe {
  /** Number of writes that were tried. */
  requests = 0;
  readonly #clock: ProcessClock;
  /** Failures of removals are not counted. */
  readonly #quiet: Requests;
  readonly #counted: Requests;

  constructor(clock: ProcessClock, counted: Requests, quiet: Requests) {
    this.#clock = clock;
    this.#counted = counted;
    this.#quiet = quiet;
  }

  start(): void {
    this.#clock.after(probeMs, () => {
      void this.#write();
      this.start();
    });
  }

  /** A config that is removed again, which concerns no task. */
  async #write(): Promise<void> {
    this.requests += 1;
    const name = `rehearsal-probe-${this.requests}`;
    const spec = ConfigSpec.create({ annotations: Annotations.create({ name }), data: new Uint8Array([1]) });
    try {
      const { config } = await this.#counted.send(
        CreateConfig,
        CreateConfigRequest.create({ spec }),
        "write of the probe",
      );
      if (config === null) return;
      await this.#quiet.send(RemoveConfig, RemoveConfigRequest.create({ configId: config.id }), "removal by the probe");
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
    }
  }
}
