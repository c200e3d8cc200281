/**
 * Runs a node's tasks on one driver plugin: for the agent's tasks a driver like any other (`TaskDriver`), with an actor for
 * each task that speaks to the plugin.
 *
 * PD1: a task is started at most once, whoever dies: what became of a start is asked of the driver-task actor's record, and a
 *      run that is not known to have ended is looked for, never begun again.
 * PD2: how a run ended is on the disk before the plugin is told to forget it, so a later life of the agent knows it too.
 * PD3: a task that ended is destroyed at once; its directories, output and record stay until the manager forgets it.
 */
import { planMounts } from "../../machines/driver/driver-mounts.ts";
import type { DriverTaskNews } from "../../machines/driver/driver-task.ts";
import { DriverCapabilities_MountConfigs as MountConfigs, TaskConfig } from "../../proto/gen/nomad.ts";
import type {
  AgentPlugins,
  AgentPorts,
  DriverOutcome,
  DriverTask,
  FoundTask,
  NodeFacts,
  OutputReader,
  OutputRequest,
  StartOutcome,
  TaskDriver,
  TaskExit,
} from "./agent-ports.ts";
import type { DriverDescription, DriverPluginActor, DriverPluginPorts } from "./driver-plugin.ts";
import {
  encodedConfig,
  exitOf,
  fileMountsOf,
  isolationOf,
  mountsOf,
  taskConfigOf,
  taskNameOf,
  wantsOf,
  type DriverWants,
} from "./driver-task-config.ts";
import { DriverNetworks, inNetwork } from "./driver-network.ts";
import { DriverTaskActor, driverTaskRecord } from "./driver-task.ts";
import type { TaskNetworks } from "./task-networks.ts";
import { sentence } from "../sentence.ts";

/** Prefix of the records of runs; the task's id follows. */
const runRecords = "driver-run.";

/** Between two looks at whether a task has been well. */
const healthLookMs = 500;

interface RunRecord {
  /** The plugin's id of the task. */
  readonly id: string;
  readonly stopSignal: string;
  readonly stopGraceMs: number;
  /** Null while it is not known to have ended. */
  readonly exit: TaskExit | null;
}

type RunState =
  | { readonly kind: "starting" }
  | { readonly kind: "running" }
  | { readonly kind: "refused"; readonly reason: string }
  | { readonly kind: "ended"; readonly exit: TaskExit };

/** A task that the plugin was asked to start, in this life or an earlier one. */
interface Run {
  readonly taskId: string;
  record: RunRecord;
  readonly actor: DriverTaskActor;
  state: RunState;
  /** Tells when `state` is no longer `starting`, and when it is the last one. */
  readonly settled: PromiseWithResolvers<void>;
  readonly ended: PromiseWithResolvers<TaskExit>;
  readonly destroyed: PromiseWithResolvers<void>;
}

interface Prepared {
  readonly wants: DriverWants;
  readonly description: DriverDescription;
  readonly config: TaskConfig;
}

export interface PluginDriverOptions {
  /** As services name it: the plugin's own name. */
  readonly kind: string;
  readonly plugin: DriverPluginActor;
  readonly plugins: AgentPlugins;
  readonly facts: NodeFacts;
  /** Null: this node makes none. */
  readonly networks: TaskNetworks | null;
}

export class PluginDriver implements TaskDriver {
  readonly kind: string;
  readonly #ports: DriverPluginPorts;
  readonly #options: PluginDriverOptions;
  readonly #runs = new Map<string, Run>();
  readonly #prepared = new Map<string, Prepared>();
  readonly #turns = new Map<string, Promise<unknown>>();
  readonly #networks: DriverNetworks;

  constructor(ports: DriverPluginPorts, options: PluginDriverOptions) {
    this.kind = options.kind;
    this.#ports = ports;
    this.#options = options;
    this.#networks = new DriverNetworks({ ...options, log: ports.telemetry.log, clock: ports.clock });
  }

  /** Somebody can be asked to start or stop something. */
  get isServing(): boolean {
    return this.#options.plugin.client !== null;
  }

  /** What of a task that runs others may ask the plugin for; null when it does not. */
  running(taskId: string): DriverTaskActor | null {
    const run = this.#runs.get(taskId);
    return run?.state.kind === "running" ? run.actor : null;
  }

  prepare(task: DriverTask): Promise<DriverOutcome> {
    return this.#inTurn(task.id, () => this.#prepare(task));
  }

  async start(task: DriverTask): Promise<StartOutcome> {
    const run = await this.#inTurn(task.id, () => this.#start(task));
    if (typeof run === "string") return { kind: "refused", reason: run };
    await run.settled.promise;
    await this.#proven(run);
    if (run.state.kind === "refused") {
      await this.#options.plugins.homes.end(task.id);
      return { kind: "refused", reason: run.state.reason };
    }
    // It failed before it was well: it never counted as running.
    if (run.state.kind === "ended" && healthOf(run) === "starting" && hasFailed(run.state.exit))
      return { kind: "refused", reason: `${this.kind}: ${endOf(run.state.exit)}` };
    return { kind: "started", pid: pidOf(run) };
  }

  async wait(taskId: string): Promise<TaskExit> {
    const run = this.#runs.get(taskId);
    if (run === undefined) return { code: -1, signal: "", reason: "nothing runs of this task", lastOutput: "" };
    return run.ended.promise;
  }

  async find(taskId: string): Promise<FoundTask> {
    const found = await this.#inTurn(taskId, () => this.#known(taskId));
    if (found === null || "code" in found) {
      // What an earlier life made for it and did not start it in, or could not take away when it had ended.
      void this.#inTurn(taskId, () => this.#networks.remove(taskId));
      return found === null ? { kind: "absent" } : { kind: "exited", pid: 0, exit: found };
    }
    await found.settled.promise;
    await this.#proven(found);
    return found.state.kind === "running"
      ? { kind: "running", pid: pidOf(found) }
      : { kind: "exited", pid: 0, exit: await found.ended.promise };
  }

  async stop(taskId: string): Promise<TaskExit | null> {
    const run = await this.#inTurn(taskId, () => this.#known(taskId));
    if (run === null) {
      await this.#options.plugins.homes.end(taskId);
      await this.#networks.remove(taskId);
      return null;
    }
    if ("code" in run) return run;
    const isOver = run.state.kind === "ended" || run.state.kind === "refused";
    if (!isOver) run.actor.stopTask(run.record.stopSignal, run.record.stopGraceMs);
    const exit = await run.ended.promise;
    return run.state.kind === "refused" ? null : exit;
  }

  giveUpStart(taskId: string): void {
    const run = this.#runs.get(taskId);
    if (run?.state.kind === "starting" || run?.state.kind === "running")
      run.actor.stopTask(run.record.stopSignal, run.record.stopGraceMs);
  }

  address(taskId: string): string | null {
    return this.#runs.get(taskId)?.actor.address || this.#networks.address(taskId);
  }

  output(taskId: string, request: OutputRequest): OutputReader {
    return this.#options.plugins.homes.output(taskId, request);
  }

  remove(taskId: string): Promise<void> {
    return this.#inTurn(taskId, async () => {
      const run = this.#runs.get(taskId);
      if (run !== undefined) await run.destroyed.promise;
      await this.#networks.remove(taskId);
      this.#prepared.delete(taskId);
      this.#runs.delete(taskId);
      this.#turns.delete(taskId);
      await this.#options.plugins.homes.remove(taskId);
      await this.#ports.disk.remove(runRecords + taskId);
    });
  }

  close(): void {
    for (const { actor } of this.#runs.values()) actor.stop();
    this.#runs.clear();
    this.#networks.close();
  }

  #inTurn<T>(taskId: string, act: () => Promise<T>): Promise<T> {
    const turn = (this.#turns.get(taskId) ?? Promise.resolve()).then(act);
    this.#turns.set(
      taskId,
      turn.catch(() => {}),
    );
    return turn;
  }

  /** The engine's name of a task's container; empty where there is none. */
  containerOf(taskId: string): string {
    return this.#runs.get(taskId)?.actor.attributes["container_id"] ?? "";
  }

  /**
   * Where the driver itself finds out how a task is, as an engine does for containers, the task counts as running once it has
   * been well; one that is not is ended by the driver.
   */
  async #proven(run: Run): Promise<void> {
    while (run.state.kind === "running" && healthOf(run) === "starting") {
      await Promise.race([
        new Promise<void>((resolve) => this.#ports.clock.setTimeout(resolve, healthLookMs)),
        run.ended.promise,
      ]);
      if (run.state.kind === "running") await run.actor.inspect();
    }
  }

  /** What it said of itself, as soon as it did. */
  async #description(): Promise<DriverDescription> {
    const { plugin } = this.#options;
    if (plugin.description === null) await new Promise<void>((resolve) => plugin.whenServing(resolve));
    return plugin.description as DriverDescription;
  }

  async #prepare(task: DriverTask): Promise<DriverOutcome> {
    const refused = (reason: string): DriverOutcome => ({ kind: "refused", reason: `${this.kind}: ${reason}` });
    const wants = wantsOf(task);
    if (wants.kind === "refused") return refused(wants.reason);
    const description = await this.#description();
    if ((wants.spec.health?.command ?? []).length > 0 && description.capabilities?.exec === false)
      return refused("the driver runs no commands in its tasks, as the health check asks");
    const isolation = isolationOf(description);
    if (isolation === null) return refused("the driver wants a chroot, which this node does not make");
    const { agent, homes } = this.#options.plugins;
    const name = taskNameOf(task);
    const hasOutput = description.capabilities?.disableLogCollection !== true;
    const outcome = await homes.prepare(task, wants.spec, {
      name,
      isolation,
      hasOutput,
      isBare: wants.container !== null,
    });
    if (outcome.kind === "refused") return refused(outcome.reason);
    const { home } = outcome;
    const variables = { "node.unique.id": task.nodeId, "node.unique.name": task.nodeHostname, ...home.env };
    const encoded = encodedConfig(wants.config, description, variables);
    if (encoded.kind === "refused") {
      await homes.end(task.id);
      return refused(encoded.reason);
    }
    const planned = planMounts(wants.spec.mounts, task.volumes ?? []);
    if (planned.length > 0 && description.capabilities?.mountConfigs === MountConfigs.NO_MOUNTS) {
      await homes.end(task.id);
      return refused("the driver mounts nothing for its tasks");
    }
    const { facts } = this.#options;
    // A task is started once in its life (PD1), so its id is its start's.
    const id = `${task.id}/${name}/00000001`;
    try {
      const mounts = [
        ...mountsOf(planned, await homes.mount(task.id, planned), isolation),
        ...fileMountsOf(home, name, wants.container?.files ?? []),
      ];
      const config = taskConfigOf(task, { id, home, wants, mounts, driverConfig: encoded.bytes, agent, facts });
      this.#prepared.set(task.id, {
        wants,
        description,
        config: await this.#withNetwork(task, config, wants, description),
      });
    } catch (error) {
      await homes.end(task.id);
      return refused(sentence(error));
    }
    return { kind: "done" };
  }

  /** Rejects with why it cannot have one. */
  async #withNetwork(
    task: DriverTask,
    config: TaskConfig,
    { container }: DriverWants,
    description: DriverDescription,
  ): Promise<TaskConfig> {
    const { network = { kind: "none" } } = task;
    switch (network.kind) {
      case "none":
        return config;
      case "refused":
        throw new Error(network.reason);
      case "plan": {
        const hostname = container?.hostname || (task.slot === 0 ? config.name : `${config.name}-${task.slot}`);
        const asked = config.dns?.servers ?? [];
        const isolation = await this.#networks.make(network.plan, hostname, description, asked);
        return inNetwork(config, network.plan, isolation, await this.#networks.resolver(network.plan, config.dns));
      }
    }
  }

  /** The run, or why there is none. */
  async #start(task: DriverTask): Promise<Run | string> {
    if (this.#runs.has(task.id)) return `${this.kind}: the task was started already`;
    // Prepared by an earlier life, when there is nothing of it here.
    if (!this.#prepared.has(task.id)) {
      const outcome = await this.#prepare(task);
      if (outcome.kind === "refused") return outcome.reason;
    }
    const { config, wants } = this.#prepared.get(task.id) as Prepared;
    const { stopGraceMs, stopSignal } = wants;
    const env = task.traceparent === "" ? config.env : { ...config.env, TRACEPARENT: task.traceparent };
    const record: RunRecord = { id: config.id, stopSignal, stopGraceMs, exit: null };
    try {
      await this.#save(task.id, record);
    } catch (error) {
      await this.#networks.remove(task.id);
      return `${this.kind}: cannot record the task on this node: ${sentence(error)}`;
    }
    this.#prepared.delete(task.id);
    return this.#begin(task.id, record, TaskConfig.patch(config, { env }), null);
  }

  #begin(
    taskId: string,
    record: RunRecord,
    config: TaskConfig,
    before: Awaited<ReturnType<typeof driverTaskRecord>>,
  ): Run {
    const { plugin } = this.#options;
    const heard: DriverTaskNews[] = [];
    let run: Run | null = null;
    // The actor may speak before there is a run to speak of.
    const onNews = (news: DriverTaskNews): void => {
      if (run === null) heard.push(news);
      else this.#hear(run, news);
    };
    const actor = new DriverTaskActor(this.#ports, { config, plugin, record: before, onNews });
    run = {
      taskId,
      record,
      actor,
      state: { kind: "starting" },
      settled: Promise.withResolvers(),
      ended: Promise.withResolvers(),
      destroyed: Promise.withResolvers(),
    };
    this.#runs.set(taskId, run);
    for (const news of heard) this.#hear(run, news);
    return run;
  }

  /** The run of this life or an earlier one; how it ended, where that is all there is; null when it was never begun. PD1 */
  async #known(taskId: string): Promise<Run | TaskExit | null> {
    const run = this.#runs.get(taskId);
    if (run !== undefined) return run;
    const record = await this.#load(taskId);
    if (record === null) return null;
    const before = await driverTaskRecord(this.#ports.disk, record.id);
    if (record.exit !== null && before === null) return record.exit;
    if (before === null) return null; // recorded, and the driver was never asked
    const found = this.#begin(taskId, record, TaskConfig.create({ id: record.id }), before);
    if (record.exit !== null) {
      // It had ended, and the driver was not yet told to forget it: how it ended this time is no news. PD2
      found.state = { kind: "ended", exit: record.exit };
      found.settled.resolve();
      found.ended.resolve(record.exit);
      found.actor.stopTask("", 0);
      return found;
    }
    this.#options.plugins.homes
      .resume(taskId)
      .catch((error: unknown) =>
        this.#ports.telemetry.log.error({ error, task: taskId }, "the output of a task that goes on is lost"),
      );
    return found;
  }

  #hear(run: Run, news: DriverTaskNews): void {
    switch (news.kind) {
      case "running":
        if (run.state.kind !== "starting") return;
        run.state = { kind: "running" };
        run.settled.resolve();
        return;
      case "waiting":
        // Every task waits until the driver is asked, which mostly is at once.
        if (this.#options.plugin.client !== null) return;
        this.#ports.telemetry.log.info({ task: run.taskId, driver: this.kind, reason: news.reason }, "a task waits");
        return;
      case "stopping":
        return;
      case "exited":
        void this.#finish(run, async () => exitOf(news.exit, await this.#lastOutput(run.taskId)), null);
        return;
      case "failed": {
        const reason = `${this.kind}: ${news.reason}`;
        const refusal = run.state.kind === "starting" ? reason : null;
        void this.#finish(run, async () => ({ code: -1, signal: "", reason, lastOutput: "" }), refusal);
        return;
      }
      case "destroyed":
        if (news.reason !== "")
          this.#ports.telemetry.log.error({ task: run.taskId, driver: this.kind, reason: news.reason }, "a task");
        void this.#networks.remove(run.taskId).then(() => run.destroyed.resolve());
    }
  }

  /** PD2, PD3. `refusal`: it never ran, for that reason. */
  async #finish(run: Run, exitOfRun: () => Promise<TaskExit>, refusal: string | null): Promise<void> {
    if (run.state.kind !== "ended") {
      await this.#options.plugins.homes.end(run.taskId);
      const exit = await exitOfRun();
      run.record = { ...run.record, exit };
      try {
        await this.#save(run.taskId, run.record);
      } catch (error) {
        this.#ports.telemetry.log.error({ error, task: run.taskId }, "cannot record how a task ended");
      }
      run.state = refusal === null ? { kind: "ended", exit } : { kind: "refused", reason: refusal };
      run.settled.resolve();
      run.ended.resolve(exit);
    }
    run.actor.destroy();
  }

  /** Of the driver's files: a task that failed tells it. */
  async #lastOutput(taskId: string): Promise<string> {
    return this.#options.plugins.homes.lastOutput(taskId).catch(() => "");
  }

  #save(taskId: string, record: RunRecord): Promise<void> {
    return this.#ports.disk.save(runRecords + taskId, new TextEncoder().encode(JSON.stringify(record)));
  }

  async #load(taskId: string): Promise<RunRecord | null> {
    const bytes = await this.#ports.disk.load(runRecords + taskId);
    if (bytes === null) return null;
    try {
      return JSON.parse(new TextDecoder().decode(bytes)) as RunRecord;
    } catch {
      return null; // half a record cannot be: the disk keeps whole ones
    }
  }
}

/** The driver's word; empty where it has none. */
function healthOf({ actor }: Run): string {
  return actor.attributes["health"] ?? "";
}

function hasFailed({ code, reason }: TaskExit): boolean {
  return code !== 0 || reason !== "";
}

function endOf({ code, reason }: TaskExit): string {
  return reason === "" ? `it ended with exit code ${code} before it was well` : reason;
}

/** 0 where the driver tells none. */
function pidOf({ actor }: Run): number {
  const pid = Number(actor.attributes["pid"] ?? "");
  return Number.isSafeInteger(pid) && pid > 0 ? pid : 0;
}

/** The part of an agent's ports that plugins need. */
export function driverPorts(ports: AgentPorts, plugins: AgentPlugins): DriverPluginPorts {
  const { clock, disk, host, random, telemetry } = ports;
  return { clock, disk, host, random, telemetry, launcher: plugins.launcher };
}
