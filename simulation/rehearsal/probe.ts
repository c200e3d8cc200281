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
const probeMs = 1_000;

export class Probe {
  /** Number of writes that were tried. */
  requests = 0;
  readonly #clock: ProcessClock;
  readonly #requests: Requests;
  /** Configs that were created, and are to be removed. */
  readonly #created: string[] = [];

  constructor(clock: ProcessClock, requests: Requests) {
    this.#clock = clock;
    this.#requests = requests;
  }

  start(): void {
    this.#clock.after(probeMs, () => {
      void this.#write();
      this.start();
    });
  }

  /** Creates a config, which concerns no task, and removes it with the next write. */
  async #write(): Promise<void> {
    this.requests += 1;
    const what = "write of the probe";
    const configId = this.#created.pop();
    try {
      if (configId !== undefined) {
        await this.#requests.send(RemoveConfig, RemoveConfigRequest.create({ configId }), what);
        return;
      }
      const annotations = Annotations.create({ name: `rehearsal-probe-${this.requests}` });
      const spec = ConfigSpec.create({ annotations, data: new Uint8Array([1]) });
      const { config } = await this.#requests.send(CreateConfig, CreateConfigRequest.create({ spec }), what);
      if (config !== null) this.#created.push(config.id);
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
    }
  }
}
