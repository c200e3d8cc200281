/**
 * `/containers/{id}/stats`: what the drivers of nodes measure, with the fields that Docker's client reads. Drivers report shares of
 * a processor; the counters that clients expect are added up from them, from the first sample of each request.
 */
import { TaskCallRequest, TaskStatsWish, type Task } from "../../../proto/gen/messages.ts";
import { TaskStats } from "../../../proto/gen/nomad.ts";
import { timeText } from "../../../lib/docker-objects/values.ts";
import { jsonText } from "../../../lib/template/template.ts";
import type { Store } from "../../../runtime/store/store.ts";
import { boolOf } from "../go-text.ts";
import { ok, type Handler } from "../request.ts";
import { callTask } from "../task-call.ts";
import { findContainer, type TaskContainer } from "./containers.ts";

/** Time between two samples, in milliseconds. A client that reads too slowly loses samples in between. */
const intervalMs = 1_000;
/** Bytes that wait for a client, beyond which samples are dropped. */
const waitingBytesMax = 64 * 1_024;

interface Counters {
  readonly total: number;
  readonly kernel: number;
  readonly user: number;
  /** The sum for all processors of the node. */
  readonly system: number;
}

interface Machine {
  readonly processors: number;
  readonly memoryBytes: number;
}

function machineOf(task: Task, store: Store): Machine {
  const resources = store.get("node", task.nodeId)?.description?.resources;
  return {
    processors: Math.max(1, Math.round((resources?.nanoCpus ?? 0) / 1e9)),
    memoryBytes: task.spec?.resources?.limits?.memoryBytes || (resources?.memoryBytes ?? 0),
  };
}

function cpuObject({ kernel, system, total, user }: Counters, processors: number): unknown {
  return {
    cpu_usage: { total_usage: total, usage_in_kernelmode: kernel, usage_in_usermode: user },
    system_cpu_usage: system,
    online_cpus: processors,
    throttling_data: { periods: 0, throttled_periods: 0, throttled_time: 0 },
  };
}

/** Before the first sample, and for a container that does not run. */
const noCpu = {
  cpu_usage: { total_usage: 0, usage_in_kernelmode: 0, usage_in_usermode: 0 },
  throttling_data: { periods: 0, throttled_periods: 0, throttled_time: 0 },
};

const noBlocks = {
  io_service_bytes_recursive: null,
  io_serviced_recursive: null,
  io_queue_recursive: null,
  io_service_time_recursive: null,
  io_wait_time_recursive: null,
  io_merged_recursive: null,
  io_time_recursive: null,
  sectors_recursive: null,
};

function idle({ id, name }: TaskContainer): unknown {
  return {
    read: timeText(null),
    preread: timeText(null),
    pids_stats: {},
    blkio_stats: noBlocks,
    num_procs: 0,
    storage_stats: {},
    cpu_stats: noCpu,
    precpu_stats: noCpu,
    memory_stats: {},
    name: `/${name}`,
    id,
  };
}

/** Makes Docker's objects of consecutive samples. */
class Samples {
  readonly #container: TaskContainer;
  readonly #machine: Machine;
  #last: { readonly at: number; readonly counters: Counters } | null = null;

  constructor(container: TaskContainer, machine: Machine) {
    this.#container = container;
    this.#machine = machine;
  }

  next({ aggResourceUsage, resourceUsageByPid, timestamp }: TaskStats): {
    readonly object: unknown;
    readonly isFirst: boolean;
  } {
    const { id, name } = this.#container;
    const { memoryBytes, processors } = this.#machine;
    const { cpu = null, memory = null } = aggResourceUsage ?? {};
    const at = (timestamp?.seconds ?? 0) * 1e9 + (timestamp?.nanos ?? 0);
    const before = this.#last;
    const passed = before === null ? intervalMs * 1e6 : Math.max(1, at - before.at);
    const grown = (counter: number, percent: number): number => counter + Math.round((percent / 100) * passed);
    const from = before?.counters ?? { total: 0, kernel: 0, user: 0, system: 0 };
    const counters = {
      total: grown(from.total, cpu?.percent ?? 0),
      kernel: grown(from.kernel, cpu?.systemMode ?? 0),
      user: grown(from.user, cpu?.userMode ?? 0),
      system: grown(from.system, 100 * processors),
    };
    this.#last = { at, counters };
    const used = memory === null ? 0 : memory.usage || memory.rss;
    return {
      isFirst: before === null,
      object: {
        read: timeText(timestamp),
        preread: before === null ? timeText(null) : new Date(before.at / 1e6).toISOString(),
        pids_stats: { current: Object.keys(resourceUsageByPid).length },
        blkio_stats: noBlocks,
        num_procs: 0,
        storage_stats: {},
        cpu_stats: cpuObject(counters, processors),
        precpu_stats: before === null ? noCpu : cpuObject(before.counters, processors),
        memory_stats: {
          usage: used,
          max_usage: memory?.maxUsage ?? 0,
          stats: { cache: memory?.cache ?? 0, rss: memory?.rss ?? 0, swap: memory?.swap ?? 0 },
          limit: memoryBytes,
        },
        name: `/${name}`,
        id,
      },
    };
  }
}

export const containerStats: Handler = async (request) => {
  const { backend, calls, query, response, signal } = request;
  const isStream = query.get("stream") === null || boolOf(query, "stream");
  const isOneShot = boolOf(query, "one-shot");
  const container = await findContainer(request, request.name);
  if (container.state !== "running") return ok(idle(container));
  const samples = new Samples(container, machineOf(container.task, backend.store));
  const enough = new AbortController();
  const leave = (): void => enough.abort();
  signal.addEventListener("abort", leave, { once: true });
  let isBegun = false;
  const { ended } = await callTask(
    calls,
    TaskCallRequest.create({ taskId: container.task.id, stats: TaskStatsWish.create({ intervalMs }) }),
    {
      onAnswer({ stats }) {
        if (stats.length === 0 || enough.signal.aborted) return;
        const { isFirst, object } = samples.next(TaskStats.decode(stats));
        // A share of a processor needs two samples.
        if (isFirst && !isStream && !isOneShot) return;
        if (!isBegun) response.writeHead(200, { "content-type": "application/json" });
        isBegun = true;
        if (response.writableLength <= waitingBytesMax) response.write(`${jsonText(object)}\n`);
        if (!isStream) enough.abort();
      },
      waitingBytes: () => response.writableLength,
    },
    enough.signal,
  );
  try {
    await ended;
  } catch (error) {
    if (!isBegun) throw error;
  }
  if (!isBegun) return ok(idle(container));
  response.end();
  return null;
};
