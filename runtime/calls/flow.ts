/**
 * The messages of one call in one direction of a link: split into parts that fit into a message of NATS, and limited by what the
 * receiver has consumed.
 *
 * FL1: at most `windowBytes` of a call are under way to a receiver that does not read.
 * FL2: messages arrive whole, or the call ends.
 */
import { LinkFrame_Kind, type LinkFrame } from "../../proto/gen/messages.ts";

type Fields = Partial<Omit<LinkFrame, "life" | "number">>;

/** Bytes of a call in flight: 2.5 MB/s with a round trip of 100 ms. */
export const windowBytes = 256 * 1024;
/** Receivers report consumed bytes in steps of this size. */
const takenStepBytes = windowBytes / 4;
/** A frame's cost besides its data, so that empty messages are limited too. */
const frameCostBytes = 64;
/** Space in a NATS message for the fields of a frame besides its data: path, trace, texts and details. */
const headBytesMax = 8 * 1024;
/** Maximum length of an error's text (UTF-16 units, up to three bytes each) and of its details in bytes; longer details are dropped. */
const textMax = 1_000;
const detailsBytesMax = 4 * 1024;

const nothing = new Uint8Array(0);

/** Largest part of a message in a frame, in bytes. `payloadBytesMax`: NATS' `max_payload`. */
export function partBytesMax(payloadBytesMax: number): number {
  return Math.min(takenStepBytes, Math.max(1, payloadBytesMax - headBytesMax)) - frameCostBytes;
}

/** The fields of an END, cut to what a frame can carry. */
export function endFields(code: number, text: string, details: Uint8Array | null): Fields {
  const carried = details !== null && details.length <= detailsBytesMax ? details : nothing;
  return { kind: LinkFrame_Kind.END, code, text: text.slice(0, textMax), details: carried };
}

/** The sending half. */
export class Outbox {
  readonly #partBytes: number;
  readonly #send: (fields: Fields) => void;
  #queue: { readonly fields: Fields; readonly bytes: number }[] = [];
  #queuedBytes = 0;
  #inFlight = 0;

  constructor(partBytes: number, send: (fields: Fields) => void) {
    this.#partBytes = partBytes;
    this.#send = send;
  }

  /** Bytes that the receiver's window has not admitted. */
  get bufferedBytes(): number {
    return this.#queuedBytes;
  }

  /** `first`, `last`: fields of the first and the last part's frame, which otherwise are MESSAGEs. */
  message(bytes: Uint8Array, { first, last }: { readonly first?: Fields; readonly last?: Fields } = {}): void {
    for (let from = 0; from === 0 || from < bytes.length; from += this.#partBytes) {
      const data = bytes.subarray(from, from + this.#partBytes);
      const more = from + this.#partBytes < bytes.length;
      const fields = {
        kind: LinkFrame_Kind.MESSAGE,
        ...(from === 0 ? first : undefined),
        ...(more ? undefined : last),
        data,
        more,
        hasData: true,
      };
      this.#push(fields, data.length + frameCostBytes);
    }
    this.#pump();
  }

  /** A frame without a message, after all messages. */
  frame(fields: Fields): void {
    this.#push(fields, 0);
    this.#pump();
  }

  /** Discards what has not been sent. */
  drop(): void {
    this.#queue = [];
    this.#queuedBytes = 0;
  }

  /** The receiver has consumed that many bytes. */
  taken(bytes: number): void {
    this.#inFlight = Math.max(0, this.#inFlight - bytes);
    this.#pump();
  }

  #push(fields: Fields, bytes: number): void {
    this.#queue.push({ fields, bytes });
    this.#queuedBytes += bytes;
  }

  #pump(): void {
    let sent = 0;
    for (const { bytes, fields } of this.#queue) {
      if (this.#inFlight > 0 && this.#inFlight + bytes > windowBytes) break;
      this.#inFlight += bytes;
      this.#queuedBytes -= bytes;
      sent += 1;
      this.#send(fields);
    }
    if (sent > 0) this.#queue = this.#queue.slice(sent);
  }
}

interface InboxOptions {
  /** Maximum size of a message. */
  readonly messageBytesMax: number;
  readonly onMessage: (bytes: Uint8Array) => void;
  /** A message is larger; nothing follows. */
  readonly onTooLarge: () => void;
  /** The sender has sent more than its window; nothing follows. */
  readonly onOverrun: () => void;
  /** Bytes to report to the sender. */
  readonly onTaken: (bytes: number) => void;
}

/** The receiving half. */
export class Inbox {
  readonly #options: InboxOptions;
  #parts: Uint8Array[] = [];
  #partsBytes = 0;
  /** Work in the order of its frames, and the bytes that it frees; null unless paused. */
  #held: { readonly act: () => void; readonly bytes: number }[] | null = null;
  #unreported = 0;
  /** Received and not reported as consumed. */
  #outstanding = 0;
  #isOver = false;

  constructor(options: InboxOptions) {
    this.#options = options;
  }

  /** The data of a frame, if it has any. */
  receive({ data, hasData, more }: LinkFrame): void {
    if (!hasData || this.#isOver) return;
    const bytes = data.length + frameCostBytes;
    this.#outstanding += bytes;
    // FL1, which a malicious sender does not keep.
    if (this.#outstanding > windowBytes) {
      this.over();
      this.#options.onOverrun();
      return;
    }
    this.#partsBytes += data.length;
    if (this.#partsBytes > this.#options.messageBytesMax) {
      this.over();
      this.#options.onTooLarge();
      return;
    }
    this.#parts.push(data);
    if (more) {
      this.#do(() => {}, bytes);
      return;
    }
    const message = joined(this.#parts, this.#partsBytes);
    this.#parts = [];
    this.#partsBytes = 0;
    this.#do(() => this.#options.onMessage(message), bytes);
  }

  /** Runs `act` after all messages before it. */
  after(act: () => void): void {
    this.#do(act, 0);
  }

  pause(): void {
    this.#held ??= [];
  }

  resume(): void {
    const held = this.#held ?? [];
    this.#held = null;
    while (held.length > 0 && this.#held === null) {
      const { act, bytes } = held.shift() as (typeof held)[number];
      this.#do(act, bytes);
    }
    // Paused again meanwhile.
    if (held.length > 0) this.#held = [...held, ...(this.#held ?? [])];
  }

  /** Nothing is delivered any more. */
  over(): void {
    this.#isOver = true;
    this.#parts = [];
    this.#held = null;
  }

  #do(act: () => void, bytes: number): void {
    if (this.#isOver) return;
    if (this.#held !== null) {
      this.#held.push({ act, bytes });
      return;
    }
    this.#unreported += bytes;
    if (this.#unreported >= takenStepBytes) {
      this.#options.onTaken(this.#unreported);
      this.#outstanding -= this.#unreported;
      this.#unreported = 0;
    }
    act();
  }
}

function joined(parts: readonly Uint8Array[], length: number): Uint8Array {
  if (parts.length === 1) return parts[0] as Uint8Array;
  const whole = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
