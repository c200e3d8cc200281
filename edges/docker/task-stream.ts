/** The streams of a client's connection to a process in a task: a command of `docker exec`, or, attached, the task itself. */
import type { TaskInput } from "../../proto/gen/messages.ts";
import type { ClientStream } from "./client-stream.ts";
import type { SendInput } from "./execs.ts";
import { frameHeader, stderr, stdout } from "./frames.ts";

/** Maximum input of one message, in bytes. */
const inputBytesMax = 64 * 1_024;

/** One input at a time: the manager accepts the next when the driver has taken the one before. */
export function inOrder(send: SendInput): SendInput {
  let last: Promise<void> = Promise.resolve();
  return (input) => (last = last.catch(() => undefined).then(() => send(input)));
}

/** Reads no further until the process has taken what was read. */
export function forwardInput(
  input: NonNullable<ClientStream["input"]>,
  send: (input: Partial<TaskInput>) => Promise<void>,
): void {
  input.on("data", (data: Buffer) => {
    input.pause();
    const pieces: Promise<void>[] = [];
    for (let at = 0; at < data.length; at += inputBytesMax)
      pieces.push(send({ data: data.subarray(at, at + inputBytesMax) }));
    // Input that a process does not take any more is dropped: its end is on the way.
    void Promise.allSettled(pieces).then(() => input.resume());
  });
  input.once("end", () => void send({ close: true }).catch(() => undefined));
}

interface OutputWish {
  /** Without frames, as from a terminal. */
  readonly isRaw: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
}

/** Output from before the answer to the client begins waits here; the node sends no more than the limit of `waitingBytes`. */
export class TaskOutput {
  readonly #wish: OutputWish;
  #early: Uint8Array[] = [];
  #stream: ClientStream | null = null;

  constructor(wish: OutputWish) {
    this.#wish = wish;
  }

  begin(stream: ClientStream): void {
    this.#stream = stream;
    for (const each of this.#early.splice(0)) stream.write(each);
  }

  onAnswer({ stdout: out, stderr: err }: { readonly stdout: Uint8Array; readonly stderr: Uint8Array }): void {
    if (out.length > 0 && (this.#wish.stdout || this.#wish.isRaw)) this.#write(stdout, out);
    if (err.length > 0 && this.#wish.stderr) this.#write(stderr, err);
  }

  failure(sentence: string): void {
    this.#write(stderr, Buffer.from(`${sentence}\r\n`));
  }

  waitingBytes(): number {
    return this.#stream?.waitingBytes() ?? 0;
  }

  #write(stream: typeof stdout | typeof stderr, data: Uint8Array): void {
    if (!this.#wish.isRaw) this.#put(frameHeader(stream, data.length));
    this.#put(data);
  }

  #put(data: Uint8Array): void {
    if (this.#stream === null) this.#early.push(data);
    else this.#stream.write(data);
  }
}
