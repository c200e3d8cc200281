/**
 * The cluster's objects of a recording, for the page: reads at a moment are answered by the code that answers them in a manager, over
 * the recorded state. Nothing can be written.
 */
import { trace } from "@opentelemetry/api";
import { createControl } from "../../actors/control.ts";
import type { Environment } from "../../actors/environment.ts";
import { createReadAt } from "../../actors/history/read-at.ts";
import { eventOf } from "../../actors/watch/events.ts";
import type { CallMethod, LocalServices, UiCallContext } from "../../edges/ui/backend.ts";
import * as pki from "../../lib/pki/index.ts";
import { stampedTimes } from "../../machines/elapsed.ts";
import {
  OperatorService,
  TimelineChange,
  TimelineChanges,
  TimelineService,
  Version,
  WatchMessage,
} from "../../proto/gen/messages.ts";
import { timeMs } from "../../proto/time.ts";
import { Host } from "../../runtime/host.ts";
import type { Bus, Telemetry } from "../../runtime/ports/index.ts";
import { RpcError, Status, type CallContext } from "../../runtime/ports/rpc.ts";
import type { OpenedRecording } from "../../runtime/recording/opened.ts";
import type { RecordedObjects } from "../../runtime/recording/recorded-objects.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { SystemClock } from "../../runtime/system/clock.ts";
import { SystemRandom } from "../../runtime/system/random.ts";
import { createMetrics } from "../../runtime/telemetry/metrics.ts";

/** Changes of one answer: some megabytes. */
const changesMax = 5_000;

/** There is no other manager. */
const nobody: Bus = {
  publish: () => undefined,
  subscribe: () => ({ unsubscribe: () => undefined }),
  request: () => Promise.resolve({ kind: "no-responders" }),
  isUp: () => false,
  onLink: () => ({ unsubscribe: () => undefined }),
};

const ignored = (): void => undefined;

function environment(): Environment {
  const clock = new SystemClock();
  const telemetry: Telemetry = {
    tracer: trace.getTracer("muster"),
    metrics: createMetrics(),
    log: { debug: ignored, info: ignored, warn: ignored, error: ignored },
  };
  return {
    managerId: "",
    clock,
    random: new SystemRandom(),
    bus: nobody,
    telemetry,
    host: new Host({ clock, telemetry, onCrash: ignored }),
    store: new Replica(),
    proposer: {
      propose: () => Promise.resolve({ kind: "unavailable", maybe: false, message: "this is a recording" }),
    },
    times: stampedTimes,
  };
}

/** The page's caller: whoever has opened the file may read all of it. */
function callOf({ signal, traceparent }: UiCallContext): CallContext {
  return { peer: { identity: null, local: true, address: "" }, signal, traceparent };
}

/** FAILED_PRECONDITION for a recording without objects. */
function objectsOf({ fault, missing, objects }: OpenedRecording): RecordedObjects {
  if (objects !== null) return objects;
  const said = missing.filter((each) => each.startsWith("the cluster's objects"));
  // A damaged file may have had them.
  const why = fault?.message ?? (said.length > 0 ? said.join("; ") : "an earlier version of Muster made it");
  throw new RpcError(Status.FAILED_PRECONDITION, `this recording has no cluster objects: ${why}`);
}

function changesUpTo(objects: RecordedObjects, atMs: number, limit: number): TimelineChanges {
  if (limit < 1 || limit > changesMax)
    throw new RpcError(Status.INVALID_ARGUMENT, `invalid limit ${limit}: expected 1 to ${changesMax}`);
  let left = limit;
  const changes: TimelineChange[] = [];
  for (const { atMs: writtenMs, commit } of objects.commitsUpTo(atMs, limit).toReversed()) {
    const events = commit.changes.slice(-left).flatMap((change) => eventOf(change, true) ?? []);
    left -= Math.min(left, commit.changes.length);
    if (events.length > 0) {
      const version = Version.create({ index: commit.version });
      const message = WatchMessage.encode(WatchMessage.create({ events, version }));
      changes.push(TimelineChange.create({ atMs: writtenMs, message }));
    }
    if (left === 0) break;
  }
  return TimelineChanges.create({ changes: changes.toReversed() });
}

/** A page may send anything. INVALID_ARGUMENT for malformed bytes. */
function decoded<Request>(codec: { decode(bytes: Uint8Array): Request }, bytes: Uint8Array): Request {
  try {
    return codec.decode(bytes);
  } catch {
    throw new RpcError(Status.INVALID_ARGUMENT, "malformed request");
  }
}

export function recordedCluster(recording: OpenedRecording): LocalServices {
  const { ReadAt } = OperatorService.methods;
  const { Changes } = TimelineService.methods;
  const readAt = createReadAt(environment(), {
    stateAt: (moment) => {
      const objects = objectsOf(recording);
      return Promise.resolve("version" in moment ? objects.atVersion(moment.version) : objects.at(timeMs(moment.time)));
    },
    controlAt: (past, leaderId) => createControl(past, { leaderId: () => leaderId, authority: pki }).handlers,
  });
  return new Map<string, CallMethod>([
    [
      ReadAt.path,
      async (_method, request, sink, context) => {
        await sink.write(ReadAt.response.encode(await readAt(decoded(ReadAt.request, request), callOf(context))));
      },
    ],
    [
      Changes.path,
      async (_method, request, sink) => {
        const { atMs, limit } = decoded(Changes.request, request);
        await sink.write(Changes.response.encode(changesUpTo(objectsOf(recording), atMs, limit)));
      },
    ],
  ]);
}
