/** Reads at earlier versions and histories of objects, on every manager, one rebuild at a time. */
import type {
  HistoryRequest,
  HistoryResponse,
  ReadAtRequest,
  ReadAtResponse,
  RecordingPart,
} from "../../proto/gen/messages.ts";
import type { Blobs, Log } from "../../runtime/ports/index.ts";
import type { CallContext, Sink } from "../../runtime/ports/rpc.ts";
import type { ControlHandlers } from "../control/handlers.ts";
import type { Environment, Running } from "../environment.ts";
import { recordLogRange, type LogRangeRequest } from "./log-range.ts";
import { versionOf } from "./moment.ts";
import { Pasts } from "./pasts.ts";
import { createReadAt } from "./read-at.ts";
import { streamHistory } from "./story.ts";
import { rebuildsWaitingMax, Turns } from "./turns.ts";

/** Called by the Operator service. */
export interface HistoryPort {
  readAt(request: ReadAtRequest, call: CallContext): Promise<ReadAtResponse>;
  stream(request: HistoryRequest, sink: Sink<HistoryResponse>, call: CallContext): void;
}

/** Called by the Inspection service. */
interface LogRangePort {
  /** Sends the range of the log for a recording. Resolves with a sentence for each part that is missing; never rejects. */
  recordRange(request: LogRangeRequest, sink: Sink<RecordingPart>): Promise<readonly string[]>;
}

interface HistoryParts {
  readonly log: Log;
  readonly blobs: Blobs;
  /** Control over another environment; `leaderId`: the leader at that time. */
  controlAt(env: Environment, leaderId: string): ControlHandlers;
}

export function createHistory(
  env: Environment,
  { log, blobs, controlAt }: HistoryParts,
): HistoryPort & LogRangePort & Running {
  const { clock, telemetry } = env;
  const parts = { log, blobs, clock, telemetry };
  const turns = new Turns(rebuildsWaitingMax);
  const pasts = new Pasts(parts, turns);
  const followers = new Set<() => void>();
  const seconds = telemetry.metrics.histogram(
    "muster_history_seconds",
    "Time to answer a request about the history, in seconds.",
  );
  const readAt = createReadAt(env, {
    stateAt: async (moment, signal) => pasts.at(await versionOf({ ...parts, store: env.store }, moment), signal),
    controlAt,
  });
  return {
    async readAt(request, call) {
      const begun = clock.monotonic();
      try {
        return await readAt(request, call);
      } finally {
        seconds.observe((clock.monotonic() - begun) / 1_000);
      }
    },
    stream: (request, sink, call) => streamHistory({ ...parts, env, turns, followers }, request, sink, call),
    recordRange: (request, sink) => recordLogRange({ ...parts, store: env.store, pasts }, request, sink),
    stop() {
      pasts.stop();
      // Each removes itself from the set.
      for (const end of followers) end();
    },
  };
}
