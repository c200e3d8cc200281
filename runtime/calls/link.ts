/**
 * A link: a sequence of numbered frames in each direction between a node and a manager, over subjects that may lose, repeat
 * and reorder messages. It is whole or broken; nothing is sent again.
 *
 * LK1: the user of a side gets the other side's frames each once and in order, up to some frame, and none after `onBroken`.
 * LK2: a lost frame, also the last one, breaks the link within `aliveMs` and a delivery: the next frame has a later number.
 */
import { LinkFrame, LinkFrame_Kind } from "../../proto/gen/messages.ts";
import { newId } from "../ids.ts";
import type { Clock, Random, TimerHandle } from "../ports/index.ts";

/**
 * Interval of a side's own timer, in milliseconds: a process that was stopped itself has not been left alone. All links of a process tick
 * at its multiples: a timer alone wakes the process, which costs a manager more than a thousand ticks at once.
 */
const tickMs = 2_000;
/**
 * A side that has sent nothing for more than this number of ticks sends its number: for longer than the 5 s between the heartbeats of a node,
 * whose numbers do the same, so that an idle node's link has no other frames.
 */
const quietMax = 3;
/** A side that has sent nothing for so long has sent its number, in milliseconds. */
export const aliveMs = (quietMax + 1) * tickMs;
/** A link breaks after more than this number of ticks without any frame. */
const silentMax = 5;
/** A side notices within this time that the other is gone, in milliseconds. */
export const linkSilentMsMax = (silentMax + 1) * tickMs;

/** Digits of a link's id and of its `life`, which each frame has, in base 36: 67 random bits. */
const tokenLength = 13;

/** A new id of a link, or `life` of an accepted one. */
export function linkToken(random: Random): string {
  return newId(random).slice(0, tokenLength);
}

type Fields = Partial<Omit<LinkFrame, "life" | "number">>;

interface LinkOptions {
  readonly clock: Clock;
  /** Chosen by the manager. */
  readonly life: string;
  /** Number of frames that each side has sent before: of the opening. */
  readonly sent: number;
  readonly received: number;
  readonly publish: (frame: Uint8Array) => void;
  readonly onFrame: (frame: LinkFrame) => void;
  /** Called once, unless this side closes the link first. */
  readonly onBroken: (reason: string) => void;
}

export class Link {
  readonly #options: LinkOptions;
  #sent: number;
  #received: number;
  #isOpen = true;
  /** Ticks since a frame was sent, and since one was received. */
  #quiet = 0;
  #silent = 0;
  #timer: TimerHandle;

  constructor(options: LinkOptions) {
    this.#options = options;
    this.#sent = options.sent;
    this.#received = options.received;
    this.#timer = this.#tickAfter(0);
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  send(fields: Fields): void {
    if (!this.#isOpen) return;
    this.#quiet = 0;
    this.#sent += 1;
    const { life, publish } = this.#options;
    publish(LinkFrame.encode(LinkFrame.create({ ...fields, life, number: this.#sent })));
  }

  /** A frame that arrived for this link. False for one without effect: of another life, such as a recorded one, or repeated. */
  receive(frame: LinkFrame): boolean {
    if (!this.#isOpen || frame.life !== this.#options.life) return false;
    if (frame.kind === LinkFrame_Kind.GONE) {
      this.#break(frame.text === "" ? "the peer closed the link" : frame.text);
      return true;
    }
    if (frame.number <= this.#received) return false;
    if (frame.number !== this.#received + 1) {
      this.break(`frame ${this.#received + 1} of the link was lost`);
      return true;
    }
    this.#received = frame.number;
    this.#silent = 0;
    this.#options.onFrame(frame);
    return true;
  }

  /** Ends the link on both sides; this one is not notified. */
  close(reason: string): void {
    if (!this.#isOpen) return;
    this.#shut();
    const { life, publish } = this.#options;
    publish(goneFrame(life, reason));
  }

  /** As `close`, and notifies this side. */
  break(reason: string): void {
    if (!this.#isOpen) return;
    this.close(reason);
    this.#options.onBroken(reason);
  }

  #break(reason: string): void {
    this.#shut();
    this.#options.onBroken(reason);
  }

  #shut(): void {
    this.#isOpen = false;
    this.#options.clock.clearTimeout(this.#timer);
  }

  #tick(): void {
    this.#silent += 1;
    if (this.#silent > silentMax) {
      this.break(`nothing was received on the link for ${(silentMax * tickMs) / 1_000} s`);
      return;
    }
    this.#quiet += 1;
    if (this.#quiet > quietMax) this.send({ kind: LinkFrame_Kind.ALIVE });
    // A timer that fires early, or late, is not followed by the next one at once.
    this.#timer = this.#tickAfter(tickMs / 2);
  }

  /** At the first multiple after more than `ms`. */
  #tickAfter(ms: number): TimerHandle {
    const { clock } = this.#options;
    return clock.setTimeout(() => this.#tick(), ms + tickMs - ((clock.monotonic() + ms) % tickMs));
  }
}

/** Tells the peer that a link has ended. `life`: of the frames that this answers. */
export function goneFrame(life: string, text: string): Uint8Array {
  return LinkFrame.encode(LinkFrame.create({ kind: LinkFrame_Kind.GONE, life, text }));
}
