/** The opening of a link by a node: the same for every kind of link. */
import { decodedOrNull } from "../../proto/codec.ts";
import { LinkFrame, LinkFrame_Kind } from "../../proto/gen/messages.ts";
import type { Bus, Clock, Subscription } from "../ports/index.ts";
import { RpcError, Status } from "../ports/rpc.ts";

/** How long a manager may take to accept a link, in milliseconds; as for the connection and handshake of gRPC. */
const openMsMax = 5_000;

interface OpeningOptions {
  readonly clock: Clock;
  readonly bus: Pick<Bus, "publish" | "subscribe">;
  readonly managerId: string;
  /** Subject of this side's frames. */
  readonly up: string;
  /** Subject of the manager's. */
  readonly down: string;
}

/** A link that the manager has accepted. */
export interface Opened {
  readonly life: string;
  /** The manager's frames; the link ends it. */
  readonly subscription: Subscription;
}

interface FrameTaker {
  receive(frame: LinkFrame): void;
}

/** Resolves with what `begin` makes once the manager has accepted the link; rejects with RpcError UNAVAILABLE. */
export function openLink<Taker extends FrameTaker>(
  { bus, clock, down, managerId, up }: OpeningOptions,
  begin: (opened: Opened) => Taker,
): Promise<Taker> {
  const { promise, reject, resolve } = Promise.withResolvers<Taker>();
  let link: Taker | null = null;
  const fail = (reason: string): void => {
    clock.clearTimeout(timer);
    subscription.unsubscribe();
    reject(new RpcError(Status.UNAVAILABLE, reason));
  };
  const subscription = bus.subscribe(down, ({ data }) => {
    const frame = decodedOrNull(LinkFrame, data);
    if (frame === null) return;
    if (link !== null) link.receive(frame);
    else if (frame.kind === LinkFrame_Kind.GONE) fail(frame.text);
    else if (frame.kind === LinkFrame_Kind.WELCOME) {
      clock.clearTimeout(timer);
      link = begin({ life: frame.life, subscription });
      resolve(link);
    }
  });
  const timer = clock.setTimeout(() => fail(`manager ${managerId} does not answer`), openMsMax);
  bus.publish(up, LinkFrame.encode(LinkFrame.create({ kind: LinkFrame_Kind.HELLO, number: 1 })));
  return promise;
}
