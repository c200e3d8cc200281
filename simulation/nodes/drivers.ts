/**
 * The driver plugins of a simulated node: processes that crash, and tasks that outlive them and the agent.
 *
 * S35: at any time one process of a plugin runs on a node, and its driver starts no task twice. This holds even if an older
 *      state of the agent's disk was restored, provided that a manager knew of the first start. An unknown start does not
 *      count; its run has ended with the machine's power.
 */
import type { AgentPlugins, OutputReader, TaskHomes } from "../../actors/agent/ports.ts";
import { NomadDriverConfig } from "../../proto/gen/nomad.ts";
import type { ProbeOutcome, Probes } from "../../runtime/ports/probes.ts";
import type { ProcessClock, SimClock } from "../../runtime/sim/clock.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";
import { DriverMachine, type Look, type MachineHabits } from "./driver-machine.ts";
import type { NetworkMachine } from "./network-machine.ts";

/** The plugin's own name. */
export const driverKind = "driven";

/** The port on which a healthy task accepts connections. */
export const wellPort = 80;
/** Maximum duration of a health probe, with faults (longer than some checks' timeout) and without. */
const lookMsMax = { troubled: 1_500, healed: 400 } as const;

export interface DriverFaults extends MachineHabits {
  /** Mean time between two crashes of a plugin, in milliseconds; 0: none. */
  readonly pluginCrashMs: number;
  /** Probability that it hangs instead. */
  readonly pluginHang: number;
  /** Probability that a starting agent does not find the plugin's executable. */
  readonly takenAway: number;
  /** Probability that a batch of changes to the node's network fails midway. */
  readonly networkFailure: number;
}

export class SimDrivers {
  readonly machine: DriverMachine;
  readonly #clock: SimClock;
  readonly #random: SimRandom;
  readonly #trace: SimTrace;
  readonly #pluginHang: number;
  #crashMs: number;
  #takenAway: number;
  #isHere = true;
  #lookMsMax: number = lookMsMax.troubled;

  constructor(
    clock: SimClock,
    random: SimRandom,
    trace: SimTrace,
    faults: DriverFaults,
    network: NetworkMachine | null,
  ) {
    this.#clock = clock;
    this.#random = random;
    this.#trace = trace;
    this.#crashMs = faults.pluginCrashMs;
    this.#pluginHang = faults.pluginHang;
    this.#takenAway = faults.takenAway;
    this.machine = new DriverMachine(clock, random.fork("machine"), faults, network);
    this.#crashLater();
  }

  /** Turns all faults off. */
  heal(): void {
    this.#crashMs = 0;
    this.#takenAway = 0;
    this.#lookMsMax = lookMsMax.healed;
    this.machine.heal();
  }

  /** The plugin's executable existed when the agent started. */
  get areHere(): boolean {
    return this.#isHere;
  }

  /** Ids of the cluster's tasks that run. */
  running(): readonly string[] {
    return this.machine.running().map(taskOf);
  }

  /** Forgets starts that no manager knows of: the agent's restored disk does not contain them. */
  forgetStarts(isTold: (taskId: string) => boolean): void {
    for (const [id, task] of this.machine.tasks) {
      if (task.starts === 0 || isTold(taskOf(id))) continue;
      this.#trace.mark("driver.start.forgotten");
      task.starts = 0;
    }
  }

  /** S35, S41; null if they hold. */
  flaw(): string | null {
    const [wrong] = this.machine.wrongs;
    if (wrong !== undefined) return `S41: ${wrong}`;
    for (const [id, { starts }] of this.machine.tasks)
      if (starts > 1) return `S35: task ${id} was started ${starts} times by its driver`;
    return this.machine.livePlugins > 1 ? `S35: ${this.machine.livePlugins} processes of one plugin run` : null;
  }

  /** Whether a check has found the task healthy. */
  isProven(taskId: string): boolean {
    return [...this.machine.tasks].some(([id, { isProven }]) => taskOf(id) === taskId && isProven === true);
  }

  /** Whether the task is healthy now. */
  isWell(taskId: string): boolean {
    return [...this.machine.tasks.keys()].some((id) => taskOf(id) === taskId && this.machine.isWell(id));
  }

  /** Probes of its tasks. A task's address is its driver's task id; of its two ports, only the first may be healthy. */
  probes(clock: ProcessClock): Probes {
    const look = (id: string, what: Look): Promise<ProbeOutcome> =>
      new Promise((resolve) =>
        clock.after(this.#random.between(0, this.#lookMsMax), () =>
          resolve(this.machine.look(id, what) ? { kind: "passed" } : { kind: "failed", reason: "unhealthy" }),
        ),
      );
    return {
      http: ({ address, path }) => look(address, path === "/well" ? "well" : "never"),
      tcp: ({ address, port }) => look(address, port === wellPort ? "well" : "never"),
    };
  }

  /** The plugins of one life of the agent. */
  plugins(clock: ProcessClock): AgentPlugins {
    this.#isHere = !this.#random.chance(this.#takenAway);
    if (!this.#isHere) this.#trace.mark("driver.plugin.taken.away");
    const binary = { name: "sim", path: "/sim", args: [], env: {}, autoMtls: false };
    return {
      launcher: this.machine.launcherOf(clock),
      homes,
      cgroups: null,
      binaries: this.#isHere ? [{ binary, config: null, makesCgroups: true }] : [],
      agent: NomadDriverConfig.create(),
    };
  }

  #crashLater(): void {
    if (this.#crashMs === 0) return;
    this.#clock.setTimeout(
      () => {
        if (this.#crashMs === 0) return;
        const hangs = this.#random.chance(this.#pluginHang);
        this.#trace.mark(hangs ? "driver.plugin.hang" : "driver.plugin.crash");
        if (hangs) this.machine.hangPlugins();
        else this.machine.killPlugins();
        this.#crashLater();
      },
      this.#random.between(1, 2 * this.#crashMs),
    );
  }
}

/** The cluster's task id in the driver's task id. */
function taskOf(id: string): string {
  return id.split("/")[0] as string;
}

const nothing: OutputReader = {
  next: async () => null,
  position: () => ({}),
  stopFollowing: () => {},
  close: () => {},
};

/** A node whose disk is large enough for everything, and never read. */
const homes: TaskHomes = {
  prepare: async ({ id }) => ({
    kind: "ready",
    home: { allocDir: `/${id}`, stdoutPath: "/dev/null", stderrPath: "/dev/null", env: {}, user: "" },
  }),
  mount: async (_taskId, mounts) => mounts.map(({ target }) => target),
  resume: async () => {},
  chrootMounts: async () => [],
  userOf: (name) => ({ kind: "user", name }),
  output: () => nothing,
  lastOutput: async () => "",
  end: async () => {},
  remove: async () => {},
  close: () => {},
};
