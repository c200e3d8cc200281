/** What a watcher is shown of a change: the objects of SwarmKit's kinds, without what never leaves a manager. */
import { redactedCluster, redactedSecret, withoutJoinTokens } from "../../machines/redaction.ts";
import { WatchActionKind, Object as WatchedUnion, WatchMessage_Event } from "../../proto/gen/messages.ts";
import type { ObjectChange } from "../../runtime/store/store.ts";

export const actionOf = {
  create: WatchActionKind.WATCH_ACTION_CREATE,
  update: WatchActionKind.WATCH_ACTION_UPDATE,
  remove: WatchActionKind.WATCH_ACTION_REMOVE,
} as const;

/** Null for records that are Muster's own and no business of SwarmKit's API. */
function shown(change: ObjectChange, which: "object" | "old"): WatchedUnion | null {
  switch (change.table) {
    case "cluster": {
      const cluster = change[which];
      return cluster === null ? null : WatchedUnion.create({ cluster: withoutJoinTokens(redactedCluster(cluster)) });
    }
    case "secret": {
      const secret = change[which];
      return secret === null ? null : WatchedUnion.create({ secret: redactedSecret(secret) });
    }
    case "session":
    case "manager":
    case "rollout":
    case "user":
      return null;
    case "node":
    case "service":
    case "network":
    case "task":
    case "resource":
    case "extension":
    case "config":
    case "volume":
      return change[which] === null ? null : WatchedUnion.create({ [change.table]: change[which] });
  }
}

/** Null where there is nothing to show. */
export function eventOf(change: ObjectChange, includesOld: boolean): WatchMessage_Event | null {
  const object = shown(change, "object");
  if (object === null) return null;
  const oldObject = includesOld ? shown(change, "old") : null;
  return WatchMessage_Event.create({ action: actionOf[change.action], object, oldObject });
}
