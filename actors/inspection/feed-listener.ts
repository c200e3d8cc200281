/** The receiving end of the feed of actors (`process-feed.ts`). */
import type { ActorFeed } from "../../proto/gen/messages.ts";

export interface FeedListener {
  /** Asked before each message; false: the listener is behind, and the feed drops intermediate steps of actors and counts them. */
  ready(): boolean;
  /** The first messages are a snapshot, in parts (`begins` … `ends`). */
  onFeed(feed: ActorFeed): void;
}
