/**
 * Output of tasks in the Muster facade: the last lines in one reply, as `muster service logs` and `task logs` print them, or
 * new lines by a watcher, as with `--follow`.
 */
import {
  LogSelector,
  LogSubscriptionOptions,
  SubscribeLogsMessage,
  SubscribeLogsRequest,
  type Timestamp,
  type LogMessage,
} from "../../../proto/gen/messages.ts";
import { timestampOf } from "../../../proto/time.ts";
import type { LogLines } from "../../../proto/log-lines.ts";
import { RpcError, Status } from "../../../runtime/ports/rpc.ts";
import type { Call, FacadeSources, Method } from "../facade.ts";
import type { Params } from "../params.ts";
import { RequestError } from "../request-error.ts";
import type { Json } from "../results.ts";
import { FollowedOutput } from "./followed-output.ts";
import { readForAnswer } from "./one-answer.ts";
import { isNotice, shownLine, textOf, unitNames } from "./output-lines.ts";
import { notFound, unitOf, type Subjects } from "./subjects.ts";
import { addWatcher } from "./watchers.ts";

interface Parts {
  readonly sources: FacadeSources;
  readonly subjects: Subjects;
}

/** Lines of each task: default and maximum. */
const tailDefault = 100;
const tailMax = 10_000;
/** Total size; further output is dropped and `is-cut` is set. Clients accept 4 MiB in one message. */
const outputBytesMax = 512 * 1024;
/** Total number of lines: each costs about 200 bytes of the reply in addition to its text. */
const linesMax = 10_000;
/** Applications, units and tasks in one request. */
const subjectsMax = 100;
const logsTimeoutMs = 30_000;
/** LogsWatchers per connection: each buffers up to a megabyte for a slow client. */
export const followedMax = 16;

export function logMethods(parts: Parts): Record<string, Method> {
  return {
    Logs: { needs: "read-only", run: (call) => logs(parts, call) },
    WatchLogs: { needs: "read-only", run: (call) => watchLogs(parts, call) },
  };
}

async function logs(parts: Parts, call: Call): Promise<Json> {
  const request = requestOf(parts, call.params, false);
  const nameOf = unitNames(parts.sources.store);
  const lines: Json[] = [];
  const warnings: string[] = [];
  let room = outputBytesMax;
  let isCut = false;
  const keep = (message: LogMessage): void => {
    if (isNotice(message)) {
      warnings.push(textOf(message).trimEnd());
    } else if (message.data.length > room || lines.length >= linesMax) {
      isCut = true;
    } else {
      room -= message.data.length;
      lines.push(shownLine(message, nameOf));
    }
  };
  try {
    await readForAnswer<LogLines>(parts.sources, call, {
      timeoutMs: logsTimeoutMs,
      begin: (sink, rpc) => parts.sources.logs.SubscribeLogs(request, sink, rpc),
      onMessage(encoded) {
        for (const message of SubscribeLogsMessage.decode(encoded).messages) {
          if (!isCut) keep(message);
        }
        return isCut;
      },
    });
  } catch (error) {
    // Lines of some nodes are missing; the end of the stream reports it.
    if (!(error instanceof RpcError && error.code === Status.UNKNOWN)) throw error;
    warnings.push(error.message);
  }
  return { lines, "is-cut": isCut, warnings };
}

/** Returns the id of a LogsWatcher. */
function watchLogs(parts: Parts, call: Call): Json {
  const { rpc, session, shape } = call;
  const request = requestOf(parts, call.params, true);
  if (session.resources.countOf("LogsWatcher") >= followedMax)
    throw new RequestError(`more than ${followedMax} LogsWatchers on one connection`, "quota limit exceeded");
  const followed = new FollowedOutput(unitNames(parts.sources.store));
  parts.sources.logs.SubscribeLogs(request, followed.sink, { ...rpc, signal: followed.signal });
  const id = addWatcher(parts.sources, call, "LogsWatcher", followed);
  return shape === "V0" ? { LogsWatcherId: id } : { "watcher-id": id };
}

function requestOf(parts: Parts, params: Params, follow: boolean): SubscribeLogsRequest {
  const selector = selectorOf(parts, params);
  const tail = params.integer("tail") ?? tailDefault;
  if (tail < 0 || tail > tailMax) throw new RequestError(`tail must be from 0 to ${tailMax}`, "not valid");
  return SubscribeLogsRequest.create({
    selector,
    // SwarmKit's encoding: -(n+1) means the last n lines.
    options: LogSubscriptionOptions.create({ follow, tail: -tail - 1, since: sinceOf(params.text("since")) }),
  });
}

function sinceOf(time: string): Timestamp | null {
  if (time === "") return null;
  const ms = Date.parse(time);
  if (Number.isNaN(ms)) throw new RequestError("since must be a time such as 2026-01-02T15:04:05Z", "not valid");
  return timestampOf(ms);
}

function selectorOf({ sources, subjects }: Parts, params: Params): LogSelector {
  const serviceIds = params.flag("all")
    ? Array.from(sources.store.all("service"), ({ id }) => id)
    : params.texts("applications").map((name) => subjects.application(name).serviceId);
  const ofUnits = params.texts("units").map((name) => subjects.unit(unitOf(name)).taskId);
  // Also by task id, because the output of a failed attempt is needed most when the unit has a new one.
  const named = params.texts("tasks");
  const count = serviceIds.length + ofUnits.length + named.length;
  if (count === 0 && !params.flag("all"))
    throw new RequestError("at least one application, unit or task is required", "bad request");
  if (count > subjectsMax) throw new RequestError(`more than ${subjectsMax} at once`, "quota limit exceeded");
  for (const id of named) {
    if (sources.store.get("task", id) === undefined) throw notFound("task", JSON.stringify(id));
  }
  return LogSelector.create({ serviceIds, taskIds: [...ofUnits, ...named] });
}
