/** The driver plugins of a simulated node: processes that die, and tasks that outlive them and the agent. */
import type { AgentPlugins, OutputReader, TaskHomes } from "../../actors/agent/agent-ports.ts";
import { NomadDriverConfig } from "../../proto/gen/nomad.ts";
import type { ProcessClock, SimClock } from "../../runtime/sim/clock.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";
import { DriverMachine, type MachineHabits } from "../support/driver-machine.ts";

/** As the plugin calls itself. */
export const driverKind = "sim";

export interface DriverFaults extends MachineHabits {
  /** Mean time between two deaths of a plugin, in milliseconds; 0: none. */
  readonly pluginCrashMs: number;
}

export class SimDrivers {
  readonly machine: DriverMachine;
  readonly #clock: SimClock;
  readonly #random: SimRandom;
  readonly #trace: SimTrace;
  #crashMs: number;

  constructor(clock: SimClock, random: SimRandom, trace: SimTrace, faults: DriverFaults) {
    this.#clock = clock;
    this.#random = random;
    this.#trace = trace;
    this.#crashMs = faults.pluginCrashMs;
    this.machine = new DriverMachine(clock, random.fork("machine"), faults);
    this.#crashLater();
  }

  /** No faults from now on. */
  heal(): void {
    this.#crashMs = 0;
    this.machine.heal();
  }

  /** Ids of the cluster's tasks that run. */
  running(): readonly string[] {
    return this.machine.running().map((id) => id.split("/")[0] as string);
  }

  /** S35; null when it holds. */
  flaw(): string | null {
    for (const [id, { starts }] of this.machine.tasks)
      if (starts > 1) return `S35: task ${id} was started ${starts} times by its driver`;
    return this.machine.livePlugins > 1 ? `S35: ${this.machine.livePlugins} processes of one plugin run` : null;
  }

  /** What one life of the agent is handed. */
  plugins(clock: ProcessClock): AgentPlugins {
    return {
      launcher: this.machine.launcherOf(clock),
      homes,
      binaries: [{ binary: { name: "sim", path: "/sim", args: [], env: {}, autoMtls: false }, config: null }],
      agent: NomadDriverConfig.create(),
    };
  }

  #crashLater(): void {
    if (this.#crashMs === 0) return;
    this.#clock.setTimeout(
      () => {
        if (this.#crashMs === 0) return;
        this.#trace.mark("driver.plugin.crash");
        this.machine.killPlugins();
        this.#crashLater();
      },
      this.#random.between(1, 2 * this.#crashMs),
    );
  }
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
    home: { allocDir: `/${id}`, stdoutPath: "/dev/null", stderrPath: "/dev/null", env: {} },
  }),
  resume: async () => {},
  output: () => nothing,
  lastOutput: async () => "",
  end: async () => {},
  remove: async () => {},
  close: () => {},
};
