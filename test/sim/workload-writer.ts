/** Somebody who makes configs, several at a time and without a pause, and holds the answers to what became of them (S120, S121). */
import { Annotations, ConfigSpec, ControlService, CreateConfigRequest } from "../../proto/gen/messages.ts";
import { SimClient, type ClientOptions } from "./client.ts";

/** Calls under way at once: a leader that was deposed has something to lose. */
const lines = 6;
/** Between two calls of a line, in milliseconds at most. */
const pauseMsMax = 100;

export interface WriterOptions extends ClientOptions {
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
