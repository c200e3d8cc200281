/** A control group whose processes together get a part of one core, as on a machine that is busy with other work. */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Microseconds. Short, so that processes are slow instead of standing still for most of the kernel's default of 100 ms. */
const period = 10_000;

const name = `muster-bench-${process.pid}`;
/** Where control groups of version 1 and 2 are on Debian; both may exist, and only one has the processor's controller. */
const roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];

export class CpuQuota {
  readonly #folder: string;

  /** `share`: of one core, above 0. Throws if this process may not create control groups. */
  constructor(share: number) {
    const root = roots.find((each) => existsSync(join(each, "cgroup.procs")));
    if (root === undefined) throw new Error("no control groups of the processor in /sys/fs/cgroup");
    this.#folder = join(root, name);
    mkdirSync(this.#folder);
    const quota = Math.round(share * period);
    if (existsSync(join(this.#folder, "cpu.cfs_quota_us"))) {
      writeFileSync(join(this.#folder, "cpu.cfs_period_us"), String(period));
      writeFileSync(join(this.#folder, "cpu.cfs_quota_us"), String(quota));
    } else writeFileSync(join(this.#folder, "cpu.max"), `${quota} ${period}`);
  }

  /** Processes that they start later are limited as well. */
  limit(pids: readonly number[]): void {
    for (const pid of pids) writeFileSync(join(this.#folder, "cgroup.procs"), String(pid));
  }

  /** Its processes go on without a limit. */
  remove(): void {
    for (let pids = this.#pids(); pids.length > 0; pids = this.#pids())
      for (const pid of pids) writeFileSync(join(this.#folder, "..", "cgroup.procs"), pid);
    rmdirSync(this.#folder);
  }

  #pids(): readonly string[] {
    return readFileSync(join(this.#folder, "cgroup.procs"), "utf8").split("\n").filter(Boolean);
  }
}
