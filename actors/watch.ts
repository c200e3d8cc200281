/**
 * The Watch service: every manager tells what happens on its own replica. One message for each transaction, with its
 * version, so that a client always knows where it stands.
 *
 * W1: the first message is empty and comes before every event; what is committed after it is complete and in order.
 * W2: no watcher makes a queue grow without bound: one that falls `watchBufferBytesMax` behind is told to start over.
 */
import { redactedCluster, redactedSecret } from "../machines/redaction.ts";
import { isWanted, watchFilter, type WatchFilter } from "../machines/watch-filter.ts";
import {
  Version,
  WatchActionKind,
  Object as WatchedUnion,
  WatchMessage,
  WatchMessage_Event,
  type WatchRequest,
  type WatchService,
} from "../proto/gen/messages.ts";
import { RpcError, Status, type ServiceHandlers } from "../runtime/rpc.ts";
import type { Commit, ObjectChange } from "../runtime/store/store.ts";
import { rejection } from "./control/answer.ts";
import type { Environment } from "./environment.ts";

/** Some 10,000 task events: more than any burst that a client in good order leaves unread, and little beside a replica. */
export const watchBufferBytesMax = 16 * 1024 * 1024;

const actionOf = {
  create: WatchActionKind.WATCH_ACTION_CREATE,
  update: WatchActionKind.WATCH_ACTION_UPDATE,
  remove: WatchActionKind.WATCH_ACTION_REMOVE,
} as const;

/** Null for records that are Muster's own and no business of SwarmKit's API. */
function shown(change: ObjectChange, which: "object" | "old"): WatchedUnion | null {
  switch (change.table) {
    case "cluster": {
      const cluster = change[which];
      return cluster === null ? null : WatchedUnion.create({ cluster: redactedCluster(cluster) });
    }
    case "secret": {
      const secret = change[which];
      return secret === null ? null : WatchedUnion.create({ secret: redactedSecret(secret) });
    }
    case "session":
    case "manager":
    case "rollout":
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

export function createWatch(env: Environment): { readonly handlers: ServiceHandlers<typeof WatchService> } {
  const { store } = env;

  function filtersOf(request: WatchRequest): readonly WatchFilter[] {
    if (request.entries.length === 0) throw new RpcError(Status.INVALID_ARGUMENT, "no kind of object specified");
    const isResourceKind = (kind: string): boolean => store.byName("extension", kind)?.annotations?.name === kind;
    return request.entries.map((entry) => {
      const outcome = watchFilter(entry, isResourceKind);
      if (outcome.kind === "refused") throw rejection(outcome.refusal);
      return outcome.filter;
    });
  }

  function checkResume(request: WatchRequest): void {
    const from = request.resumeFrom?.index ?? null;
    if (from === null || from === store.version) return;
    throw new RpcError(
      Status.OUT_OF_RANGE,
      from > store.version
        ? `version ${from} lies ahead of this manager, which is at ${store.version}`
        : `the events after version ${from} are no longer at hand (now at ${store.version}): list again, then watch`,
    );
  }

  return {
    handlers: {
      Watch(request, sink, call) {
        const filters = filtersOf(request);
        checkResume(request);
        sink.write(WatchMessage.create({}));

        function messageOf(commit: Commit): WatchMessage | null {
          const events: WatchMessage_Event[] = [];
          for (const change of commit.changes) {
            const action = actionOf[change.action];
            const { table, object: now, old } = change;
            if (!isWanted(filters, { table, action, object: now, old })) continue;
            const object = shown(change, "object");
            if (object === null) continue;
            const oldObject = request.includeOldObject ? shown(change, "old") : null;
            events.push(WatchMessage_Event.create({ action, object, oldObject }));
          }
          if (events.length === 0) return null;
          return WatchMessage.create({ events, version: Version.create({ index: commit.version }) });
        }

        const watching = store.watch((commit) => {
          const message = messageOf(commit);
          if (message === null) return;
          if (sink.bufferedBytes() > watchBufferBytesMax) {
            watching.unsubscribe();
            sink.end(
              new RpcError(
                Status.RESOURCE_EXHAUSTED,
                `the watcher reads too slowly: more than ${watchBufferBytesMax} bytes wait for it; list again, then watch`,
              ),
            );
            return;
          }
          sink.write(message);
        });
        call.signal.addEventListener("abort", () => watching.unsubscribe());
        if (call.signal.aborted) watching.unsubscribe();
      },
    },
  };
}
