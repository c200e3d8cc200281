/**
 * A client that creates configs continually, several in parallel, and checks the answers against their effects (S120, S121).
 */
import { Annotations, ConfigSpec, ControlService, CreateConfigRequest } from "../../proto/gen/messages.ts";
import { SimClient, type ClientOptions } from "./client.ts";

/** Calls in progress at the same time, so that a deposed leader has something to lose. */
const lines = 6;
/** Maximum pause between two calls of a line, in milliseconds. */
const pauseMsMax = 100;

interface WriterOptions extends ClientOptions {
  readonly withinMs: number;
}

export class Writer {
  readonly #options: WriterOptions;
  #open = 0;

  constructor(options: WriterOptions) {
    this.#options = options;
  }

  get isDone(): boolean {
    return this.#open === 0;
  }

  start(): void {
    for (let line = 1; line <= lines; line += 1) {
      this.#open += 1;
      void this.#write(line).then(() => (this.#open -= 1));
    }
  }

  async #write(line: number): Promise<void> {
    const { ports, withinMs } = this.#options;
    const random = ports.random.fork(`writer.${line}`);
    const client = new SimClient(this.#options, random.fork("client"));
    const endsAt = ports.clock.monotonic() + withinMs;
    for (let count = 1; ports.clock.monotonic() < endsAt; count += 1) {
      const name = `written-${line}-${count}-${Math.floor(endsAt)}`;
      const spec = ConfigSpec.create({ annotations: Annotations.create({ name }), data: new Uint8Array([line]) });
      await client.attempt(async () => {
        await client.call(ControlService.methods.CreateConfig, CreateConfigRequest.create({ spec }), `create ${name}`);
      });
      await new Promise<void>((resolve) => ports.clock.after(random.between(0, pauseMsMax), resolve));
    }
  }
}
