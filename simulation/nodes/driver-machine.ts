/**
 * A machine with driver plugins, on a simulated clock: processes that may be killed, tasks that outlive them, and a disk. An
 * agent sees it through the ports of `actors/driver/plugin.ts`; each life of an agent gets its own, which die with it.
 *
 * It counts what must not happen: starts of a task beyond the first (`doubleStarts`).
 */
import type { DriverPluginPorts } from "../../actors/driver/plugin.ts";
import {
  Attribute,
  CreateNetworkResponse,
  DriverCapabilities,
  ExecTaskResponse,
  ExitResult,
  FingerprintResponse,
  FingerprintResponse_HealthState,
  InspectTaskResponse,
  NetworkIsolationSpec,
  NetworkIsolationSpec_NetworkIsolationMode as Isolation,
  NetworkOverride,
  PluginInfoResponse,
  PluginType,
  TaskHandle,
  WaitTaskResponse,
} from "../../proto/gen/nomad.ts";
import { Host } from "../../runtime/host.ts";
import {
  unknownTask,
  type DriverClient,
  type LaunchOutcome,
  type PluginLauncher,
  type RunningPlugin,
} from "../../runtime/ports/plugins.ts";
import { RpcError, Status, type ReceivingCall } from "../../runtime/ports/rpc.ts";
import type { ProcessClock, SimClock } from "../../runtime/sim/clock.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";
import type { NetworkMachine } from "./network-machine.ts";

type Living = <Result>(work: () => Result | Promise<Result>) => Promise<Result>;

interface MachineTask {
  starts: number;
  /** The machine lost its power while it ran. */
  isLost?: boolean;
  isAlive: boolean;
  exit: { readonly exitCode: number; readonly signal: number } | null;
  /** When it is healthy, in the machine's time: from a moment on, optionally until another. */
  readonly well: { readonly fromMs: number; readonly untilMs: number };
  /** A check has found it healthy. */
  isProven?: boolean;
  readonly watchers: (() => void)[];
}

export interface MachineHabits {
  /** Chances of a plugin's death: at a launch, and during StartTask (before and after the task runs). */
  readonly dieAtLaunch: number;
  readonly dieBeforeStart: number;
  readonly dieAfterStart: number;
  /** Chance that a task exits by itself within a minute of its start. */
  readonly endsByItself: number;
  /** Chances that a stop and a destroy are rejected. */
  readonly refuses: number;
  /** Chance that a task cannot be recovered by its handle. */
  readonly forgets?: number;
  /** Chance that a start takes more than a minute. */
  readonly hangs?: number;
  /** Its driver creates its tasks' networks itself. */
  readonly makesNetworks?: boolean;
  /** Chance that a task starts unhealthy, for at most `unwellMsMax`; and that it becomes unhealthy within a minute. */
  readonly unwell?: number;
}

/** How a task's health can be checked: by a command or otherwise; `never` always fails. */
export type Look = "well" | "never";

const unwellMsMax = 10_000;

class PluginProcess {
  isAlive = true;
  /** It runs but answers nothing. */
  isHung = false;
  /** Tasks known to this process. */
  readonly known = new Set<string>();
  readonly onDeath: (() => void)[] = [];
}

const nothing: ReceivingCall = { cancel: () => {}, pause: () => {}, resume: () => {} };
const lost = (): RpcError => new RpcError(Status.UNAVAILABLE, "connection to the plugin ended");

export class DriverMachine {
  readonly tasks = new Map<string, MachineTask>();
  readonly disk = new Map<string, Uint8Array>();
  /** Settings that a task was started with but must not have. */
  readonly wrongs: string[] = [];
  launches = 0;
  configurations = 0;
  readonly #clock: SimClock;
  readonly #random: SimRandom;
  readonly #habits: MachineHabits;
  readonly #processes = new Map<number, PluginProcess>();
  readonly #network: NetworkMachine | null;
  readonly #tell: ((text: string) => void)[] = [];
  #isCalm = false;

  /** `network`: where its tasks may have networks; null: they have none. */
  constructor(clock: SimClock, random: SimRandom, habits: MachineHabits, network: NetworkMachine | null = null) {
    this.#network = network;
    this.#clock = clock;
    this.#random = random;
    this.#habits = habits;
  }

  get doubleStarts(): number {
    return [...this.tasks.values()].filter(({ starts }) => starts > 1).length;
  }

  get livePlugins(): number {
    return [...this.#processes.values()].filter(({ isAlive }) => isAlive).length;
  }

  /** No faults from now on. */
  heal(): void {
    this.#isCalm = true;
  }

  killPlugins(): void {
    for (const process of this.#processes.values()) this.#die(process);
  }

  /** Sets the attribute `driver.said` of their next fingerprint; nothing else of it changes. */
  say(text: string): void {
    for (const tell of this.#tell) tell(text);
  }

  /** They keep running but answer nothing until they are killed. */
  hangPlugins(): void {
    for (const process of this.#processes.values()) process.isHung = true;
  }

  /** The ports of one life of an agent, and a function that ends it. */
  life(): { readonly ports: DriverPluginPorts; readonly kill: () => void } {
    let isAlive = true;
    const clock = this.#clock.forProcess();
    const random = this.#random.fork("life");
    const telemetry = createSimTelemetry({ who: "agent", random, trace: new SimTrace() });
    const host = new Host({
      clock,
      telemetry,
      onCrash: (_id, error) => {
        throw error;
      },
    });
    /** Nothing reaches a dead agent, and nothing that it had started continues. */
    const living = <Result>(work: () => Result | Promise<Result>): Promise<Result> =>
      new Promise((resolve, reject) => {
        this.#later(() => {
          if (!isAlive) return;
          Promise.resolve()
            .then(work)
            .then(
              (result) => isAlive && resolve(result),
              (error: unknown) => isAlive && reject(error as Error),
            );
        });
      });
    const ports: DriverPluginPorts = {
      clock,
      random,
      telemetry,
      host,
      disk: {
        load: async (name) => this.disk.get(name) ?? null,
        save: (name, data) => living(() => void this.disk.set(name, data)),
        remove: (name) => living(() => void this.disk.delete(name)),
        list: async (prefix) => [...this.disk.keys()].filter((name) => name.startsWith(prefix)),
      },
      launcher: this.#launcher(living, () => isAlive),
    };
    return {
      ports,
      kill: () => {
        isAlive = false;
        host.stopAll();
      },
    };
  }

  /** For an agent whose life is its clock's: its answers arrive in its own time. */
  launcherOf(clock: ProcessClock): PluginLauncher {
    const living: Living = (work) =>
      new Promise((resolve, reject) => {
        this.#later(() => {
          if (!clock.alive) return;
          Promise.resolve()
            .then(work)
            .then(
              (result) => clock.after(0, () => resolve(result)),
              (error: unknown) => clock.after(0, () => reject(error as Error)),
            );
        });
      });
    return this.#launcher(living, () => clock.alive);
  }

  /** Whether a task is healthy, for any check. */
  isWell(id: string): boolean {
    const task = this.tasks.get(id);
    const now = this.#clock.elapsed;
    return task?.isAlive === true && now >= task.well.fromMs && now < task.well.untilMs;
  }

  /** A check's answer. */
  look(id: string, what: string): boolean {
    const isWell = what === ("well" satisfies Look) && this.isWell(id);
    const task = this.tasks.get(id);
    if (isWell && task !== undefined) task.isProven = true;
    return isWell;
  }

  /** Ids of running tasks by the driver's account. */
  running(): readonly string[] {
    return [...this.tasks].filter(([, { isAlive }]) => isAlive).map(([id]) => id);
  }

  /** No process survives; earlier starts stay counted. */
  losePower(): void {
    this.killPlugins();
    for (const task of this.tasks.values()) {
      task.isAlive = false;
      task.isLost = true;
    }
  }

  #launcher(living: Living, isHeard: () => boolean): PluginLauncher {
    return {
      launch: (_binary, onSpawned) =>
        living((): LaunchOutcome => {
          this.launches += 1;
          const pid = this.launches;
          onSpawned(pid);
          if (this.#happens("dieAtLaunch")) return { kind: "failed", reason: "it exited before its handshake" };
          const process = new PluginProcess();
          this.#processes.set(pid, process);
          return { kind: "running", plugin: this.#plugin(pid, process, living, isHeard) };
        }),
      reattach: (_name, { pid }) =>
        living((): LaunchOutcome => {
          const process = this.#processes.get(pid);
          if (process?.isAlive !== true) return { kind: "failed", reason: "it is gone" };
          if (process.isHung) {
            this.#die(process);
            return { kind: "failed", reason: "it does not answer" };
          }
          return { kind: "running", plugin: this.#plugin(pid, process, living, isHeard) };
        }),
    };
  }

  #happens(what: Exclude<keyof MachineHabits, "makesNetworks">): boolean {
    const chance = this.#habits[what] ?? 0;
    return !this.#isCalm && chance > 0 && this.#random.next() < chance;
  }

  #drawWell(): MachineTask["well"] {
    const now = this.#clock.elapsed;
    const fromMs = this.#happens("unwell") ? now + this.#random.below(unwellMsMax) : 0;
    const untilMs = this.#happens("unwell") ? now + this.#random.below(60_000) : Number.POSITIVE_INFINITY;
    return { fromMs, untilMs };
  }

  #later(run: () => void): void {
    this.#clock.setTimeout(run, 1 + this.#random.below(20));
  }

  #die(process: PluginProcess): void {
    if (!process.isAlive) return;
    process.isAlive = false;
    for (const listener of process.onDeath.splice(0)) this.#later(listener);
  }

  #end(task: MachineTask, exitCode: number, signal: number): void {
    if (!task.isAlive) return;
    task.isAlive = false;
    task.exit = { exitCode, signal };
    for (const watcher of task.watchers.splice(0)) watcher();
  }

  #plugin(pid: number, process: PluginProcess, living: Living, isHeard: () => boolean): RunningPlugin {
    return {
      pid,
      address: { network: "unix", address: `/${pid}`, pid, startTicks: "1", logFile: "/log" },
      driver: this.#driver(process, living),
      get isConnected() {
        return process.isAlive;
      },
      onExit: (listener) => void process.onDeath.push(() => isHeard() && listener("signal SIGKILL")),
      isAnswering: async () => process.isAlive && !process.isHung,
      stop: async () => this.#die(process),
      release: () => {},
    };
  }

  #driver(process: PluginProcess, living: Living): DriverClient {
    const { tasks } = this;
    /** A call whose outcome is unknown if the plugin dies during it. */
    const call = <Result>(work: () => Result | Promise<Result>): Promise<Result> =>
      living(() => {
        if (!process.isAlive) throw lost();
        return Promise.race([
          process.isHung ? new Promise<never>(() => {}) : Promise.resolve().then(work),
          new Promise<never>((_, reject) => process.onDeath.push(() => reject(lost()))),
        ]);
      });
    const find = (id: string): MachineTask => {
      const task = tasks.get(id);
      if (task === undefined || !process.known.has(id)) throw unknownTask();
      return task;
    };
    const answered = async (): Promise<void> => {};
    return {
      pluginInfo: () =>
        call(() =>
          PluginInfoResponse.create({
            type: PluginType.DRIVER,
            pluginApiVersions: ["v0.1.0"],
            pluginVersion: "0.1.0",
            name: "driven",
          }),
        ),
      configSchema: () => call(() => null),
      setConfig: () => call(() => void (this.configurations += 1)),
      init: () => call(answered),
      // The same timeout as the real client's.
      shutdown: () =>
        Promise.race([call(answered), new Promise<void>((resolve) => this.#clock.setTimeout(resolve, 2_000))]),
      taskConfigSchema: () => call(() => null),
      capabilities: () =>
        call(() => {
          if (this.#network === null) return null;
          const networkIsolationModes = [Isolation.HOST, Isolation.GROUP];
          return DriverCapabilities.create({
            exec: true,
            networkIsolationModes,
            mustCreateNetwork: this.#habits.makesNetworks ?? false,
          });
        }),
      fingerprint: (receiver) => {
        this.#tell.push((text) => {
          const attributes = { "driver.said": Attribute.create({ stringVal: text }) };
          if (process.isAlive)
            receiver.onMessage(
              FingerprintResponse.create({ health: FingerprintResponse_HealthState.HEALTHY, attributes }),
            );
        });
        this.#later(() => {
          if (!process.isAlive) return;
          receiver.onMessage(FingerprintResponse.create({ health: FingerprintResponse_HealthState.HEALTHY }));
        });
        return nothing;
      },
      taskEvents: () => nothing,
      taskStats: () => nothing,
      startTask: (config) =>
        call(async () => {
          if (this.#happens("hangs")) await new Promise<void>((resolve) => this.#clock.setTimeout(resolve, 90_000));
          if (this.#happens("dieBeforeStart")) {
            this.#die(process);
            return new Promise<never>(() => {});
          }
          const well = this.#drawWell();
          const task = tasks.get(config.id) ?? { starts: 0, isAlive: true, exit: null, well, watchers: [] };
          task.starts += 1;
          task.isAlive = true;
          tasks.set(config.id, task);
          process.known.add(config.id);
          const path = config.networkIsolationSpec?.path ?? null;
          if (path !== null && (this.#network?.namespaces.get(path)?.size ?? 0) < 2)
            this.wrongs.push(`task ${config.id} is started in ${path}, which has no link`);
          if (this.#happens("endsByItself"))
            this.#clock.setTimeout(() => this.#end(task, 0, 0), this.#random.below(60_000));
          if (this.#happens("dieAfterStart")) {
            this.#die(process);
            return new Promise<never>(() => {});
          }
          const networkOverride = NetworkOverride.create({ addr: config.id });
          return { handle: TaskHandle.encode(TaskHandle.create({ version: 1, config })), networkOverride };
        }),
      recoverTask: (handle) =>
        call(() => {
          const id = TaskHandle.decode(handle).config?.id ?? "";
          const task = tasks.get(id);
          if (task === undefined || task.isLost === true || this.#happens("forgets"))
            throw new RpcError(Status.UNKNOWN, "nothing of it is left");
          process.known.add(id);
        }),
      waitTask: (id) =>
        call(async () => {
          const task = find(id);
          if (task.isAlive) await new Promise<void>((resolve) => task.watchers.push(resolve));
          return WaitTaskResponse.create({ result: ExitResult.create(task.exit ?? {}) });
        }),
      stopTask: (id) =>
        call(() => {
          if (this.#happens("refuses")) throw new RpcError(Status.UNKNOWN, "not now");
          if (process.known.has(id)) this.#end(find(id), 143, 15);
        }),
      destroyTask: (id) =>
        call(() => {
          if (this.#happens("refuses")) throw new RpcError(Status.UNKNOWN, "not now");
          // Found by its name, as a container is: also by a process that has never seen it.
          const task = tasks.get(id);
          if (task !== undefined) this.#end(task, 137, 9);
          process.known.delete(id);
        }),
      inspectTask: () => call(() => InspectTaskResponse.create()),
      signalTask: () => call(answered),
      execTask: ({ command, taskId }) =>
        call(() => {
          find(taskId);
          const exitCode = this.look(taskId, command[0] ?? "") ? 0 : 1;
          return ExecTaskResponse.create({ result: ExitResult.create({ exitCode }) });
        }),
      execTaskStreaming: () => ({ ...nothing, write: () => {}, finish: () => {}, bufferedBytes: () => 0 }),
      execTaskAs: () => ({ ...nothing, write: () => {}, finish: () => {}, bufferedBytes: () => 0 }),
      attachTask: () => ({ ...nothing, write: () => {}, finish: () => {}, bufferedBytes: () => 0 }),
      createNetwork: ({ allocId }) =>
        call(() => {
          const path = `/driver/${allocId}`;
          const created = this.#network?.namespaces.has(path) === false;
          if (created) this.#network?.addNamespace(path);
          if (this.#happens("dieAfterStart")) {
            this.#die(process);
            return new Promise<never>(() => {});
          }
          const isolationSpec = NetworkIsolationSpec.create({ mode: Isolation.GROUP, path });
          return CreateNetworkResponse.create({ isolationSpec, created });
        }),
      destroyNetwork: ({ isolationSpec }) => call(() => this.#network?.removeNamespace(isolationSpec?.path ?? "")),
    };
  }
}
