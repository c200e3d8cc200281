/** Watch for commands: a callback for each message, and a promise of the end. */
import {
  Version,
  WatchRequest,
  WatchService,
  type WatchMessage,
  type WatchRequest_WatchEntry,
} from "../proto/gen/messages.ts";
import type { ManagerClient } from "./manager-client.ts";
import { UserError } from "../lib/user-error.ts";

/** Create, update and remove. */
export const everyAction = 7;

interface Watching {
  /** Resolves with the first message: every later commit is reported. */
  readonly started: Promise<void>;
  /** Rejects when the stream ends by itself; never resolves. */
  readonly broken: Promise<never>;
  cancel(): void;
}

interface WatchingOptions {
  /** Version to start after; null: now. */
  readonly from?: number | null;
  /** Whether events include the previous object. */
  readonly includesOld?: boolean;
}

export function watch(
  client: ManagerClient,
  entries: readonly WatchRequest_WatchEntry[],
  onMessage: (message: WatchMessage) => void,
  { from = null, includesOld = false }: WatchingOptions = {},
): Watching {
  const started = Promise.withResolvers<void>();
  const broken = Promise.withResolvers<never>();
  // A caller may await only `broken`.
  started.promise.catch(() => undefined);
  broken.promise.catch(() => undefined);
  let isFirst = true;
  const resumeFrom = from === null ? null : Version.create({ index: from });
  const request = WatchRequest.create({ entries, resumeFrom, includeOldObject: includesOld });
  const stream = client.channel.serverStream(WatchService.methods.Watch, request, {
    onMessage(message) {
      if (!isFirst) return onMessage(message);
      isFirst = false;
      started.resolve();
    },
    onEnd(error) {
      const failure = error ?? new UserError("the manager ended the watch: is it shutting down?");
      started.reject(failure);
      broken.reject(failure);
    },
  });
  return { started: started.promise, broken: broken.promise, cancel: () => stream.cancel() };
}
