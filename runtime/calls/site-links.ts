/**
 * A manager's side of sealed links: streams of bytes from nodes of a site, behind the site's leaf node of NATS. Nothing in them is
 * believed here: whoever may use the site's subjects may write to them, and TLS inside tells who it is.
 *
 * SL1: the site of a link is the one in its subject: the manager's nats-server lets a leaf node use the subjects of its own site alone.
 * SL2: a site's links are limited; somebody who exhausts them harms that site alone.
 */
import { decodedOrNull } from "../../proto/codec.ts";
import { LinkFrame, LinkFrame_Kind } from "../../proto/gen/messages.ts";
import { newId } from "../ids.ts";
import type { Bus, Clock, Random, Subscription } from "../ports/index.ts";
import { frameForSite, parseSiteFrame, siteFramesFor, siteFramesForAny } from "../subjects.ts";
import { AcceptedLinks } from "./accepted-links.ts";
import { LinkStream } from "./link-stream.ts";

/** Open links of a site. A node needs one or two. */
export const linksPerSiteMax = 8_192;
/** Each of its nodes may return at once, for each with some frames that were under way. */
const uselessPerSiteMax = 4 * linksPerSiteMax;

interface SiteLinksOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: Pick<Bus, "publish" | "subscribe">;
  readonly managerId: string;
  /** NATS' `max_payload`. */
  readonly payloadBytesMax: number;
  /** A node has opened a link. */
  readonly onStream: (stream: LinkStream, site: string) => void;
  /** Many frames of the site have no effect; they get no answer for some seconds. */
  readonly onFlood: (site: string) => void;
}

interface SiteLinks {
  /** Serves the site until `end`. */
  begin(site: string): void;
  /** Ends the site's links. */
  end(site: string, reason: string): void;
  close(): void;
}

export function serveSiteLinks(options: SiteLinksOptions): SiteLinks {
  const { bus, clock, managerId, onFlood, onStream, payloadBytesMax, random } = options;
  const links = new AcceptedLinks({
    clock,
    bus,
    down: frameForSite,
    linksMax: linksPerSiteMax,
    whenFull: "refuse",
    uselessMax: uselessPerSiteMax,
    onFlood,
    open: (site, link, ends) => {
      const down = frameForSite(site, link);
      const publish = (frame: Uint8Array): void => bus.publish(down, frame);
      const life = newId(random);
      const stream = new LinkStream({ ...ends, clock, life, sent: 0, received: 1, payloadBytesMax, publish });
      stream.welcome();
      onStream(stream, site);
      return stream;
    },
  });
  const here = LinkFrame.encode(LinkFrame.create({ kind: LinkFrame_Kind.HERE, text: managerId }));
  const sites = new Map<string, readonly Subscription[]>();
  // A leaf node may not be sent the interest in all sites' subjects: nats-server then sends it none.
  const begin = (site: string): void => {
    if (sites.has(site)) return;
    const frames = bus.subscribe(siteFramesFor(site, managerId), ({ data, subject }) => {
      const from = parseSiteFrame(subject);
      if (from !== null) links.take(site, from.link, data);
    });
    const searches = bus.subscribe(siteFramesForAny(site), ({ data, subject }) => {
      const from = parseSiteFrame(subject);
      if (from !== null && decodedOrNull(LinkFrame, data)?.kind === LinkFrame_Kind.HELLO)
        bus.publish(frameForSite(site, from.link), here);
    });
    sites.set(site, [frames, searches]);
  };
  const end = (site: string, reason: string): void => {
    for (const each of sites.get(site) ?? []) each.unsubscribe();
    sites.delete(site);
    links.end(site, reason);
  };
  return {
    begin,
    end,
    close: () => {
      for (const site of sites.keys()) end(site, "the manager is shutting down");
    },
  };
}
