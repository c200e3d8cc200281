/** Requests to running tasks in the Muster facade: resource usage and signals. */
import { TaskCallRequest, TaskSignal, TaskStatsWish, type TaskAnswer } from "../../../proto/gen/messages.ts";
import { TaskStats } from "../../../proto/gen/nomad.ts";
import type { Call, FacadeSources, Method } from "../facade.ts";
import { RequestError } from "../request-error.ts";
import type { Json } from "../results.ts";
import { timeText } from "./muster-results.ts";
import { readForAnswer } from "./one-answer.ts";
import { unitOf, type Subjects } from "./subjects.ts";

interface Parts {
  readonly sources: FacadeSources;
  readonly subjects: Subjects;
}

/** Timeout of the single call to a driver. */
const callTimeoutMs = 30_000;
/** Interval between samples; the first one is the reply. */
const sampleMs = 1_000;

export function taskMethods(parts: Parts): Record<string, Method> {
  return {
    Stats: { needs: "read-only", run: (call) => stats(parts, call) },
    Signal: { needs: "operator", run: (call) => signal(parts, call) },
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
  if (sample === null) throw new RequestError("the task ended before its first sample", "not found");
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
