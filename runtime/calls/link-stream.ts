/**
 * A stream of bytes over a link, in the place of a TCP connection: what TLS writes on one side is read on the other, in order.
 *
 * LS1: a side that does not read stops the other one's writes: at most `windowBytes` are under way.
 * LS2: a stream that was ended by both sides has delivered everything; one whose link broke fails, on both sides.
 */
import { Duplex } from "node:stream";
import { LinkFrame_Kind, type LinkFrame } from "../../proto/gen/messages.ts";
import type { Clock } from "../ports/index.ts";
import { Inbox, Outbox, partBytesMax } from "./flow.ts";
import { Link } from "./link.ts";

/** The one call of such a link. */
const call = 1;

interface LinkStreamOptions {
  readonly clock: Clock;
  /** Chosen by the manager. */
  readonly life: string;
  /** Number of frames that each side has sent before: of the opening. */
  readonly sent: number;
  readonly received: number;
  /** NATS' `max_payload`. */
  readonly payloadBytesMax: number;
  readonly publish: (frame: Uint8Array) => void;
  /** Called once, when the link has ended. */
  readonly onOver: () => void;
  /** Called for each frame without effect. */
  readonly onUseless?: () => void;
}

type Done = (error?: Error | null) => void;

export class LinkStream extends Duplex {
  readonly #partBytes: number;
  readonly #link: Link;
  readonly #outbox: Outbox;
  readonly #inbox: Inbox;
  readonly #onOver: () => void;
  readonly #onUseless: () => void;
  /** Called when the receiver's window has admitted everything written. */
  #flushed: Done | null = null;
  #isPeerDone = false;

  constructor({ onOver, onUseless = () => undefined, payloadBytesMax, ...link }: LinkStreamOptions) {
    super();
    // A link that breaks is an ordinary event, also when nobody listens yet or any longer.
    this.on("error", () => undefined);
    this.#partBytes = partBytesMax(payloadBytesMax);
    this.#onOver = onOver;
    this.#onUseless = onUseless;
    this.#link = new Link({
      ...link,
      onFrame: (frame) => this.#take(frame),
      onBroken: (reason) => this.#broken(reason),
    });
    this.#outbox = new Outbox(this.#partBytes, (fields) => this.#link.send({ ...fields, call }));
    this.#inbox = new Inbox({
      messageBytesMax: this.#partBytes,
      onMessage: (bytes) => {
        if (!this.push(bytes)) this.#inbox.pause();
      },
      onTooLarge: () => this.#link.break("the peer sends larger parts than it may"),
      onOverrun: () => this.#link.break("the peer sends more than its window"),
      onTaken: (taken) => this.#link.send({ kind: LinkFrame_Kind.TAKEN, call, taken }),
    });
  }

  /** Accepts the link: the first frame of a manager's side. */
  welcome(): void {
    this.#link.send({ kind: LinkFrame_Kind.WELCOME });
  }

  receive(frame: LinkFrame): void {
    if (!this.#link.receive(frame) || frame.kind === LinkFrame_Kind.ALIVE) this.#onUseless();
  }

  /** Ends the link on both sides, also if what the peer has sent last is unread. */
  close(reason: string): void {
    this.#link.close(reason);
    this.destroy(broke(reason));
  }

  override _read(): void {
    this.#inbox.resume();
  }

  override _write(bytes: Uint8Array, _encoding: unknown, done: Done): void {
    for (let from = 0; from < bytes.length; from += this.#partBytes)
      this.#outbox.message(bytes.subarray(from, from + this.#partBytes));
    this.#whenFlushed(done);
  }

  /** Fewer frames than writes: TLS writes records of at most 16 KiB. */
  override _writev(chunks: readonly { readonly chunk: Uint8Array }[], done: Done): void {
    this._write(Buffer.concat(chunks.map(({ chunk }) => chunk)), null, done);
  }

  override _final(done: Done): void {
    this.#outbox.frame({ kind: LinkFrame_Kind.LAST });
    this.#whenFlushed(done);
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#link.close(error?.message ?? "");
    this.#inbox.over();
    this.#outbox.drop();
    this.#flushed?.(error ?? new Error("the stream was closed"));
    this.#flushed = null;
    this.#onOver();
    done(error);
  }

  #whenFlushed(done: Done): void {
    if (this.#outbox.bufferedBytes === 0) done();
    else this.#flushed = done;
  }

  #take({ kind, taken, ...frame }: LinkFrame): void {
    if (kind === LinkFrame_Kind.MESSAGE) this.#inbox.receive({ kind, taken, ...frame });
    else if (kind === LinkFrame_Kind.TAKEN) {
      this.#outbox.taken(taken);
      if (this.#outbox.bufferedBytes > 0) return;
      const flushed = this.#flushed;
      this.#flushed = null;
      flushed?.();
    } else if (kind === LinkFrame_Kind.LAST) {
      this.#isPeerDone = true;
      this.#inbox.after(() => this.push(null));
    }
  }

  /** LS2 */
  #broken(reason: string): void {
    // The peer has closed it after its last byte, which may still wait here for its reader.
    if (this.#isPeerDone && !this.readableEnded) this.once("end", () => this.destroy());
    else this.destroy(broke(reason));
  }
}

function broke(reason: string): Error {
  return new Error(`the link broke: ${reason}`);
}
