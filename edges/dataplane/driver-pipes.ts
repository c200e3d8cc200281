/**
 * A driver's end of the pipes: messages from main arrive on fd 3, messages to main leave on fd 4.
 *
 * P1: an unreadable frame or the end of the stream ends the driver: main has exited or cannot be understood, and a second
 *     driver may be about to start.
 */
import { Socket } from "node:net";
import { FromDataplane, ToDataplane } from "../../proto/gen/felix.ts";
import { FrameReader, frameOf } from "./frames.ts";

interface DriverPipesOptions {
  /** All messages that one read completed, in order. */
  readonly onMessages: (messages: readonly ToDataplane[]) => void;
  /** Called once, with the reason why no more messages will arrive. P1 */
  readonly onEnd: (reason: string) => void;
}

/** Unread bytes beyond which heartbeats are dropped, so that a main that does not read cannot make this process grow. */
const unreadBytesMax = 1024 * 1024;

export class DriverPipes {
  readonly #options: DriverPipesOptions;
  readonly #input: Socket;
  readonly #output: Socket;
  readonly #frames = new FrameReader();
  #sequence = 0;
  #isEnded = false;

  /** Throws if fd 3 or 4 is not a pipe or a socket: this process was not started as a driver. */
  constructor(options: DriverPipesOptions, descriptors: { readonly input: number; readonly output: number }) {
    this.#options = options;
    this.#input = new Socket({ fd: descriptors.input, readable: true, writable: false });
    this.#output = new Socket({ fd: descriptors.output, readable: false, writable: true });
    this.#input.on("data", (chunk: Buffer) => this.#read(chunk));
    this.#input.on("end", () =>
      this.#end(this.#frames.isBetween ? "main closed the pipe" : "main closed the pipe inside a frame"),
    );
    for (const socket of [this.#input, this.#output])
      socket.on("error", (error) => this.#end(`the pipe to main broke: ${error.message}`));
  }

  /** `isDroppable`: dropped while main does not read. */
  send(fields: Partial<FromDataplane>, isDroppable = false): void {
    if (this.#isEnded || (isDroppable && this.#output.writableLength > unreadBytesMax)) return;
    const message = FromDataplane.create({ ...fields, sequenceNumber: this.#sequence++ });
    this.#output.write(frameOf(FromDataplane.encode(message)));
  }

  #read(chunk: Buffer): void {
    if (this.#isEnded) return;
    const messages: ToDataplane[] = [];
    let broken: unknown = null;
    try {
      for (const body of this.#frames.push(chunk)) messages.push(ToDataplane.decode(body));
    } catch (error) {
      broken = error;
    }
    if (messages.length > 0) this.#options.onMessages(messages);
    if (broken !== null)
      this.#end(`cannot read main's messages: ${broken instanceof Error ? broken.message : "invalid frame"}`);
  }

  #end(reason: string): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#input.destroy();
    this.#options.onEnd(reason);
  }
}
