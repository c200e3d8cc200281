/** A container's resource usage, as reported by its engine. */
import type { TaskSample } from "../../edges/plugin/server/index.ts";
import type { Engine } from "./engine.ts";

interface Stats {
  readonly read: string;
  readonly cpu_stats?: {
    readonly cpu_usage?: { readonly total_usage?: number; readonly usage_in_usermode?: number };
    readonly throttling_data?: { readonly throttled_periods?: number; readonly throttled_time?: number };
  };
  readonly memory_stats?: {
    readonly usage?: number;
    readonly max_usage?: number;
    /** The kernel's names: `rss` and `cache` in cgroup v1, `anon` and `file` in v2. */
    readonly stats?: Readonly<Record<string, number>>;
  };
}

interface Reading {
  readonly atMs: number;
  readonly totalNs: number;
  readonly userNs: number;
}

function defined(fields: { readonly [Name in keyof TaskSample]: TaskSample[Name] | undefined }): TaskSample {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as TaskSample;
}

export class ContainerUsage {
  readonly #engine: Engine;
  readonly #containerId: string;
  #last: Reading | null = null;

  constructor(engine: Engine, containerId: string) {
    this.#engine = engine;
    this.#containerId = containerId;
  }

  /** CPU usage is relative to the previous sample; the first sample has none. */
  async sample(): Promise<TaskSample> {
    const query = { stream: false, "one-shot": true };
    const stats = await this.#engine.json<Stats>("GET", `/containers/${this.#containerId}/stats`, { query });
    const { cpu_stats: cpu, memory_stats: memory } = stats;
    const found: Reading = {
      atMs: Date.parse(stats.read),
      totalNs: cpu?.cpu_usage?.total_usage ?? 0,
      userNs: cpu?.cpu_usage?.usage_in_usermode ?? 0,
    };
    const last = this.#last;
    this.#last = found;
    const passedNs = last === null ? 0 : (found.atMs - last.atMs) * 1e6;
    const percent = (ns: number): number => (passedNs > 0 ? Math.max(0, (ns / passedNs) * 100) : 0);
    const cpuPercent = percent(found.totalNs - (last?.totalNs ?? 0));
    const cpuUserPercent = percent(found.userNs - (last?.userNs ?? 0));
    const kernel = memory?.stats ?? {};
    return defined({
      cpuPercent,
      cpuUserPercent,
      cpuSystemPercent: Math.max(0, cpuPercent - cpuUserPercent),
      throttledPeriods: cpu?.throttling_data?.throttled_periods,
      throttledNanoseconds: cpu?.throttling_data?.throttled_time,
      memoryRss: kernel["anon"] ?? kernel["rss"],
      memoryCache: kernel["file"] ?? kernel["cache"],
      memoryUsage: memory?.usage,
      memoryMaxUsage: memory?.max_usage,
    });
  }
}
