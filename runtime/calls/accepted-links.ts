/**
 * The links that a manager has accepted, by their owner: a node, or a site.
 *
 * AL1: an owner's open links are limited: another one closes the oldest, or is refused.
 * AL2: an owner that sends many frames without effect is reported, and gets no more answers to them.
 */
import { decodedOrNull } from "../../proto/codec.ts";
import { LinkFrame, LinkFrame_Kind } from "../../proto/gen/messages.ts";
import type { Bus, Clock } from "../ports/index.ts";
import { goneFrame } from "./link.ts";

/** Frames without effect are counted for so long, in milliseconds. */
const uselessMs = 10_000;

/** The news of a link. */
export interface LinkEnds {
  /** Called once, when the link has ended. */
  readonly onOver: () => void;
  /** Called for each frame without effect. */
  readonly onUseless: () => void;
}

export interface AcceptedLink {
  receive(frame: LinkFrame): void;
  /** Ends it on both sides; calls `onOver`. */
  close(reason: string): void;
}

interface AcceptedLinksOptions {
  readonly clock: Clock;
  readonly bus: Pick<Bus, "publish">;
  /** Subject of the frames to a link's other side. */
  readonly down: (owner: string, link: string) => string;
  /** For each owner. */
  readonly linksMax: number;
  /** AL1 */
  readonly whenFull: "close-oldest" | "refuse";
  /** The link, which has answered, or why it is not accepted. */
  readonly open: (owner: string, link: string, ends: LinkEnds) => AcceptedLink | string;
  /**
   * AL2: frames of an owner without effect within `uselessMs`: garbage, frames of no link, repeated ones, refused calls, openings of links
   * and signs of life.
   */
  readonly uselessMax: number;
  /** AL2 */
  readonly onFlood: (owner: string) => void;
}

export class AcceptedLinks {
  readonly #options: AcceptedLinksOptions;
  /** By owner and then by link, in the order of their openings. */
  readonly #owners = new Map<string, Map<string, AcceptedLink>>();
  /** By owner, since `#uselessFrom`. */
  readonly #useless = new Map<string, number>();
  #uselessFrom: number;

  constructor(options: AcceptedLinksOptions) {
    this.#options = options;
    this.#uselessFrom = options.clock.monotonic();
  }

  /** A message on the subject of that owner and link. */
  take(owner: string, link: string, data: Uint8Array): void {
    const frame = decodedOrNull(LinkFrame, data);
    if (frame === null) {
      this.#isUseless(owner);
      return;
    }
    const known = this.#owners.get(owner)?.get(link);
    if (frame.kind === LinkFrame_Kind.HELLO) {
      this.#isUseless(owner);
      if (known === undefined) this.#open(owner, link);
    } else if (known !== undefined) known.receive(frame);
    else {
      this.#isUseless(owner);
      if (frame.kind === LinkFrame_Kind.GONE || (this.#useless.get(owner) ?? 0) > this.#options.uselessMax) return;
      // It belongs to an earlier run of this process, for instance.
      this.#gone(owner, link, frame.life, "the manager does not have the link");
    }
  }

  /** Ends the owner's links. */
  end(owner: string, reason: string): void {
    for (const link of this.#owners.get(owner)?.values() ?? []) link.close(reason);
  }

  /** Ends all links. */
  close(reason: string): void {
    for (const owner of this.#owners.keys()) this.end(owner, reason);
  }

  #open(owner: string, link: string): void {
    const { linksMax, open, whenFull } = this.#options;
    const isFull = (this.#owners.get(owner)?.size ?? 0) >= linksMax;
    const opened =
      isFull && whenFull === "refuse"
        ? `more than ${linksMax} open links`
        : open(owner, link, {
            onOver: () => {
              this.#owners.get(owner)?.delete(link);
              if (this.#owners.get(owner)?.size === 0) this.#owners.delete(owner);
            },
            onUseless: () => this.#isUseless(owner),
          });
    if (typeof opened === "string") {
      this.#gone(owner, link, "", opened);
      return;
    }
    const [oldest] = isFull ? (this.#owners.get(owner)?.values() ?? []) : [];
    oldest?.close("the node has opened too many links");
    // Closing the last of several links has removed the map.
    const links = this.#owners.get(owner) ?? new Map<string, AcceptedLink>();
    this.#owners.set(owner, links.set(link, opened));
  }

  #gone(owner: string, link: string, life: string, reason: string): void {
    const { bus, down } = this.#options;
    bus.publish(down(owner, link), goneFrame(life, reason));
  }

  #isUseless(owner: string): void {
    const { clock, onFlood, uselessMax } = this.#options;
    if (clock.monotonic() - this.#uselessFrom > uselessMs) {
      this.#useless.clear();
      this.#uselessFrom = clock.monotonic();
    }
    const count = (this.#useless.get(owner) ?? 0) + 1;
    this.#useless.set(owner, count);
    if (count === uselessMax) onFlood(owner);
  }
}
