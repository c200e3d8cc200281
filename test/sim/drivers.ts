/**
 * The driver plugins of a simulated node: processes that die, and tasks that outlive them and the agent.
 *
 * S35: at any moment one process of a plugin runs on a node, and no task was started twice by its driver: not where the agent's
 *     disk became an older one either, if a manager had been told of the start. Of any other start nobody knows then; its
 *     run has ended with the machine's power.
 */
import type { AgentPlugins, OutputReader, TaskHomes } from "../../actors/agent/agent-ports.ts";
import { NomadDriverConfig } from "../../proto/gen/nomad.ts";
import type { ProbeOutcome, Probes } from "../../runtime/probes.ts";
import type { ProcessClock, SimClock } from "../../runtime/sim/clock.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";
import { DriverMachine, type Look, type MachineHabits } from "../support/driver-machine.ts";
import type { NetworkMachine } from "../support/network-machine.ts";

/** As the plugin calls itself. */
export const driverKind = "driven";

/** The port of a task that takes connections while it is well. */
export const wellPort = 80;
/** What a look takes at most, while there are faults and then: first longer than some checks wait. */
const lookMsMax = { troubled: 1_500, healed: 400 } as const;

export interface DriverFaults extends MachineHabits {
  /** Mean time between two deaths of a plugin, in milliseconds; 0: none. */
  readonly pluginCrashMs: number;
  /** Chance that it hangs instead. */
  readonly pluginHang: number;
  /** Chance that an agent that starts finds no executable of the plugin. */
  readonly takenAway: number;
  /** Chance that a batch of changes to the node's network fails on the way. */
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

  /** No faults from now on. */
  heal(): void {
    this.#crashMs = 0;
    this.#takenAway = 0;
    this.#lookMsMax = lookMsMax.healed;
    this.machine.heal();
  }

  /** The plugin's executable was there when the agent started. */
  get areHere(): boolean {
    return this.#isHere;
  }

  /** Ids of the cluster's tasks that run. */
  running(): readonly string[] {
    return this.machine.running().map(taskOf);
  }

  /** Those starts do not count of which no manager was told: the agent's disk has forgotten them. */
  forgetStarts(isTold: (taskId: string) => boolean): void {
    for (const [id, task] of this.machine.tasks) {
      if (task.starts === 0 || isTold(taskOf(id))) continue;
      this.#trace.mark("driver.start.forgotten");
      task.starts = 0;
    }
  }

  /** S35, S41; null when they hold. */
  flaw(): string | null {
    const [wrong] = this.machine.wrongs;
    if (wrong !== undefined) return `S41: ${wrong}`;
    for (const [id, { starts }] of this.machine.tasks)
      if (starts > 1) return `S35: task ${id} was started ${starts} times by its driver`;
    return this.machine.livePlugins > 1 ? `S35: ${this.machine.livePlugins} processes of one plugin run` : null;
  }

  /** Whether a check has found the task well. */
  isProven(taskId: string): boolean {
    return [...this.machine.tasks].some(([id, { isProven }]) => taskOf(id) === taskId && isProven === true);
  }

  /** Whether the task is well now. */
  isWell(taskId: string): boolean {
    return [...this.machine.tasks.keys()].some((id) => taskOf(id) === taskId && this.machine.isWell(id));
  }

  /** Looks at its tasks, each of which has its driver's name of it for an address, and two ports: at the first it is well or not. */
  probes(clock: ProcessClock): Probes {
    const look = (id: string, what: Look): Promise<ProbeOutcome> =>
      new Promise((resolve) =>
        clock.after(this.#random.between(0, this.#lookMsMax), () =>
          resolve(this.machine.look(id, what) ? { kind: "passed" } : { kind: "failed", reason: "it is not well" }),
        ),
      );
    return {
      http: ({ address, path }) => look(address, path === "/well" ? "well" : "never"),
      tcp: ({ address, port }) => look(address, port === wellPort ? "well" : "never"),
    };
  }

  /** What one life of the agent is handed. */
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

/** Of the cluster, from its driver's name of it. */
function taskOf(id: string): string {
  return id.split("/")[0] as string;
}

const nothing: OutputReader = {
  next: async () => null,
  position: () => ({}),
  stopFollowing: () => {},
  close: () => {},
};

/** A node whose disk has room for everything and shows nothing of it. */
const homes: TaskHomes = {
  prepare: async ({ id }) => ({
    kind: "ready",
    home: { allocDir: `/${id}`, stdoutPath: "/dev/null", stderrPath: "/dev/null", env: {}, user: "" },
  }),
  mount: async (_taskId, mounts) => mounts.map(({ target }) => target),
  resume: async () => {},
  chrootMounts: async () => [],
  output: () => nothing,
  lastOutput: async () => "",
  end: async () => {},
  remove: async () => {},
  close: () => {},
};
