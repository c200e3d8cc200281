/** A node's stream to one manager over the subjects of its site, and the search for a manager. */
import { decodedOrNull } from "../../proto/codec.ts";
import { LinkFrame, LinkFrame_Kind } from "../../proto/gen/messages.ts";
import { isSubjectToken, newId } from "../ids.ts";
import type { Bus, Clock, Random } from "../ports/index.ts";
import { RpcError, Status } from "../ports/rpc.ts";
import { frameForSite, siteFrame, siteFrameForAny } from "../subjects.ts";
import { LinkStream } from "./link-stream.ts";
import { openLink } from "./open-link.ts";

/** How long managers may take to answer a search, in milliseconds: less than an agent waits for a registration. */
const searchMsMax = 3_000;
/** How much later than the first manager the wanted one may answer, in milliseconds. */
const otherMsMax = 1_000;

interface SiteOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: Pick<Bus, "publish" | "subscribe">;
  readonly site: string;
}

interface SiteLinkOptions extends SiteOptions {
  readonly managerId: string;
  /** NATS' `max_payload`. */
  readonly payloadBytesMax: number;
}

/** Resolves once the manager has accepted the link; rejects with RpcError UNAVAILABLE. */
export function openSiteLink(options: SiteLinkOptions): Promise<LinkStream> {
  const { bus, clock, managerId, payloadBytesMax, random, site } = options;
  const id = newId(random);
  const up = siteFrame(site, managerId, id);
  return openLink({ clock, bus, managerId, up, down: frameForSite(site, id) }, ({ life, subscription }) => {
    const publish = (frame: Uint8Array): void => bus.publish(up, frame);
    const onOver = (): void => subscription.unsubscribe();
    return new LinkStream({ clock, life, sent: 1, received: 1, payloadBytesMax, publish, onOver });
  });
}

/**
 * The id of the manager that the site's leaf node reaches: the first one that answers, or `wanted` if it is not empty. Rejects with
 * RpcError UNAVAILABLE, before an agent would choose another manager without having noted that it cannot reach this one.
 */
export function findManager({ bus, clock, random, site }: SiteOptions, wanted: string): Promise<string> {
  const id = newId(random);
  const { promise, reject, resolve } = Promise.withResolvers<string>();
  const fail = (reason: string): void => {
    subscription.unsubscribe();
    reject(new RpcError(Status.UNAVAILABLE, reason));
  };
  let other = "";
  const subscription = bus.subscribe(frameForSite(site, id), ({ data }) => {
    const frame = decodedOrNull(LinkFrame, data);
    // Anybody at the site may answer, and as often as they like.
    if (frame?.kind !== LinkFrame_Kind.HERE || !isSubjectToken(frame.text)) return;
    if (wanted === "" || frame.text === wanted) {
      clock.clearTimeout(timer);
      subscription.unsubscribe();
      resolve(frame.text);
    } else if (other === "") {
      other = frame.text;
      clock.clearTimeout(timer);
      timer = clock.setTimeout(
        () => fail(`the NATS of site ${site} reaches manager ${other}, but not ${wanted}`),
        otherMsMax,
      );
    }
  });
  let timer = clock.setTimeout(() => {
    const why = "is its leaf node connected to a manager with --listen-leaf-nodes, and as this site?";
    fail(`no manager answers at site ${site}: ${why}`);
  }, searchMsMax);
  bus.publish(siteFrameForAny(site, id), LinkFrame.encode(LinkFrame.create({ kind: LinkFrame_Kind.HELLO, number: 1 })));
  return promise;
}
