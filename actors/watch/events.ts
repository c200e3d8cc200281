/** The events of a change that watchers receive: objects of SwarmKit's kinds, without the fields that never leave a manager. */
import { redactedCluster, redactedSecret, withoutJoinTokens } from "../../machines/redaction.ts";
import { WatchActionKind, Object as WatchedUnion, WatchMessage_Event } from "../../proto/gen/messages.ts";
import type { ObjectChange } from "../../runtime/store/store.ts";

export const actionOf = {
  create: WatchActionKind.WATCH_ACTION_CREATE,
  update: WatchActionKind.WATCH_ACTION_UPDATE,
  remove: WatchActionKind.WATCH_ACTION_REMOVE,
} as const;

/** Null for Muster's own records, which SwarmKit's API does not have. */
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
    case "format":
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

/** Null when there is no event. */
export function eventOf(change: ObjectChange, includesOld: boolean): WatchMessage_Event | null {
  const object = shown(change, "object");
  if (object === null) return null;
  const oldObject = includesOld ? shown(change, "old") : null;
  return WatchMessage_Event.create({ action: actionOf[change.action], object, oldObject });
}
