/** Encodes a driver's samples for the wire. */
import {
  CPUUsage,
  CPUUsage_Fields,
  MemoryUsage,
  MemoryUsage_Fields,
  TaskResourceUsage,
  TaskStats,
} from "../../../proto/gen/nomad.ts";
import { timestampOf } from "../../../proto/nomad-time.ts";
import type { TaskSample } from "./driver.ts";

/** Sets the measured values, and names them in `measured_fields`. */
function usage(sample: TaskSample): TaskResourceUsage {
  const cpuFields: CPUUsage_Fields[] = [];
  const memoryFields: MemoryUsage_Fields[] = [];
  const cpu = (value: number | undefined, field: CPUUsage_Fields): number => {
    if (value !== undefined) cpuFields.push(field);
    return value ?? 0;
  };
  const memory = (value: number | undefined, field: MemoryUsage_Fields): number => {
    if (value !== undefined) memoryFields.push(field);
    return value ?? 0;
  };
  return TaskResourceUsage.create({
    cpu: CPUUsage.create({
      systemMode: cpu(sample.cpuSystemPercent, CPUUsage_Fields.SYSTEM_MODE),
      userMode: cpu(sample.cpuUserPercent, CPUUsage_Fields.USER_MODE),
      totalTicks: cpu(sample.cpuTicks, CPUUsage_Fields.TOTAL_TICKS),
      throttledPeriods: cpu(sample.throttledPeriods, CPUUsage_Fields.THROTTLED_PERIODS),
      throttledTime: cpu(sample.throttledNanoseconds, CPUUsage_Fields.THROTTLED_TIME),
      percent: cpu(sample.cpuPercent, CPUUsage_Fields.PERCENT),
      measuredFields: cpuFields,
    }),
    memory: MemoryUsage.create({
      rss: memory(sample.memoryRss, MemoryUsage_Fields.RSS),
      cache: memory(sample.memoryCache, MemoryUsage_Fields.CACHE),
      maxUsage: memory(sample.memoryMaxUsage, MemoryUsage_Fields.MAX_USAGE),
      usage: memory(sample.memoryUsage, MemoryUsage_Fields.USAGE),
      swap: memory(sample.memorySwap, MemoryUsage_Fields.SWAP),
      measuredFields: memoryFields,
    }),
  });
}

/** Contains every field that Nomad's agent dereferences unchecked. */
export function statsOf(taskId: string, sample: TaskSample, nowMs: number): TaskStats {
  return TaskStats.create({
    id: taskId,
    timestamp: timestampOf(nowMs),
    aggResourceUsage: usage(sample),
    resourceUsageByPid: Object.fromEntries(
      Object.entries(sample.processes ?? {}).map(([pid, process]) => [pid, usage(process)]),
    ),
  });
}
