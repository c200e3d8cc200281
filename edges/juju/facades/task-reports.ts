/** What running tasks are asked through the Muster facade: their output, what they use, and a signal. */
import {
  LogSelector,
  LogStream,
  LogSubscriptionOptions,
  SubscribeLogsMessage,
  SubscribeLogsRequest,
  TaskCallRequest,
  TaskSignal,
  TaskStatsWish,
  Timestamp,
  type LogMessage,
  type TaskAnswer,
} from "../../../proto/gen/messages.ts";
import { TaskStats } from "../../../proto/gen/nomad.ts";
import type { LogLines } from "../../../proto/log-lines.ts";
import { RpcError, Status } from "../../../runtime/rpc.ts";
import type { Call, FacadeSources, Method } from "../facade.ts";
import type { Params } from "../params.ts";
import { RequestError } from "../request-error.ts";
import type { Json } from "../results.ts";
import { timeText } from "./muster-results.ts";
import { readForAnswer } from "./one-answer.ts";
import { notFound, unitOf, type Subjects } from "./subjects.ts";

interface Parts {
  readonly sources: FacadeSources;
  readonly subjects: Subjects;
}

/** Lines of each task, unless it is said, and at most. */
const tailDefault = 100;
const tailMax = 10_000;
/** Of all lines together; what comes after is dropped and `is-cut` says so. A client reads 4 MiB in one message. */
const outputBytesMax = 512 * 1024;
/** Of all lines, however short: each costs some 200 bytes of answer beside its text. */
const linesMax = 10_000;
/** Applications, units and tasks of one request. */
const subjectsMax = 100;
const logsTimeoutMs = 30_000;
/** For a sample or a signal: a driver is asked once. */
const callTimeoutMs = 30_000;
/** Between two samples: the first is the answer. */
const sampleMs = 1_000;

export function taskMethods(parts: Parts): Record<string, Method> {
  return {
    Logs: { needs: "read-only", run: (call) => logs(parts, call) },
    Stats: { needs: "read-only", run: (call) => stats(parts, call) },
    Signal: { needs: "operator", run: (call) => signal(parts, call) },
  };
}

/** The last lines of what is named, as `muster service logs --tail` and `task logs --tail` print them. */
async function logs({ sources, subjects }: Parts, call: Call): Promise<Json> {
  const { params } = call;
  const selector = selectorOf({ sources, subjects }, params);
  const tail = params.integer("tail") ?? tailDefault;
  if (tail < 0 || tail > tailMax) throw new RequestError(`tail is from 0 to ${tailMax}`, "not valid");
  const request = SubscribeLogsRequest.create({
    selector,
    // SwarmKit's encoding: -(n+1) is the last n.
    options: LogSubscriptionOptions.create({ follow: false, tail: -tail - 1, since: sinceOf(params.text("since")) }),
  });
  const lines: Json[] = [];
  const warnings: string[] = [];
  let room = outputBytesMax;
  let isCut = false;
  const keep = (message: LogMessage): void => {
    const { context, data } = message;
    if ((context?.taskId ?? "") === "") {
      // What a manager has to say itself is of no task.
      warnings.push(text.decode(data).trimEnd());
    } else if (data.length > room || lines.length >= linesMax) {
      isCut = true;
    } else {
      room -= data.length;
      lines.push(shownLine(message));
    }
  };
  try {
    await readForAnswer<LogLines>(sources, call, {
      timeoutMs: logsTimeoutMs,
      begin: (sink, rpc) => sources.logs.SubscribeLogs(request, sink, rpc),
      onMessage(encoded) {
        for (const message of SubscribeLogsMessage.decode(encoded).messages) {
          if (!isCut) keep(message);
        }
        return isCut;
      },
    });
  } catch (error) {
    // Some nodes' lines are missing, which the end of the stream says.
    if (!(error instanceof RpcError && error.code === Status.UNKNOWN)) throw error;
    warnings.push(error.message);
  }
  return { lines, "is-cut": isCut, warnings };
}

function sinceOf(time: string): Timestamp | null {
  if (time === "") return null;
  const ms = Date.parse(time);
  if (Number.isNaN(ms)) throw new RequestError("since is a time such as 2026-01-02T15:04:05Z", "not valid");
  const seconds = Math.floor(ms / 1_000);
  return Timestamp.create({ seconds, nanos: (ms - seconds * 1_000) * 1_000_000 });
}

function selectorOf({ sources, subjects }: Parts, params: Params): LogSelector {
  const serviceIds = params.texts("applications").map((name) => subjects.application(name).serviceId);
  const ofUnits = params.texts("units").map((name) => subjects.unit(unitOf(name)).taskId);
  // By id, too: what a failed attempt wrote is wanted most when the unit has its next.
  const named = params.texts("tasks");
  const count = serviceIds.length + ofUnits.length + named.length;
  if (count === 0) throw new RequestError("no application, unit or task is named", "bad request");
  if (count > subjectsMax) throw new RequestError(`more than ${subjectsMax} at once`, "quota limit exceeded");
  for (const id of named) {
    if (sources.store.get("task", id) === undefined) throw notFound("task", JSON.stringify(id));
  }
  return LogSelector.create({ serviceIds, taskIds: [...ofUnits, ...named] });
}

const text = new TextDecoder();

function shownLine({ context, data, stream, timestamp }: LogMessage): Json {
  return {
    "task-id": context?.taskId ?? "",
    "instance-id": context?.nodeId ?? "",
    time: timeText(timestamp),
    stream: stream === LogStream.LOG_STREAM_STDERR ? "stderr" : "stdout",
    text: text.decode(data),
  };
}

/** One sample, as `muster task stats --no-stream` shows it. */
async function stats(parts: Parts, call: Call): Promise<Json> {
  let sample: TaskStats | null = null as TaskStats | null;
  const wish = TaskStatsWish.create({ intervalMs: sampleMs });
  await ask(parts, call, { stats: wish }, (answer) => {
    if (answer.stats.length > 0) sample = TaskStats.decode(answer.stats);
    return sample !== null;
  });
  if (sample === null) throw new RequestError("the task ended before there was a sample", "not found");
  const { aggResourceUsage, resourceUsageByPid, timestamp } = sample;
  const { cpu = null, memory = null } = aggResourceUsage ?? {};
  return {
    time: timeText(timestamp),
    "cpu-percent": cpu?.percent ?? null,
    "memory-bytes": memory === null ? null : memory.usage || memory.rss,
    "memory-max-bytes": memory === null || memory.maxUsage === 0 ? null : memory.maxUsage,
    processes: Object.keys(resourceUsageByPid).length,
  };
}

async function signal(parts: Parts, call: Call): Promise<Json> {
  const given = call.params.text("signal").toUpperCase();
  if (given === "") throw new RequestError("a signal is required, such as SIGHUP", "bad request");
  const name = given.startsWith("SIG") ? given : `SIG${given}`;
  await ask(parts, call, { signal: TaskSignal.create({ name }) }, () => false);
  return {};
}

function ask(
  { sources, subjects }: Parts,
  call: Call,
  what: Partial<TaskCallRequest>,
  onMessage: (answer: TaskAnswer) => boolean,
): Promise<void> {
  const { taskId } = subjects.unit(unitOf(call.params.text("unit")));
  const request = TaskCallRequest.create({ taskId, ...what });
  return readForAnswer<TaskAnswer>(sources, call, {
    timeoutMs: callTimeoutMs,
    begin: (sink, rpc) => sources.taskAccess.Call(request, sink, rpc),
    onMessage,
  });
}
