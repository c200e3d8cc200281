/**
 * Runs a node's tasks on one driver plugin: for the agent's tasks a driver like any other (`TaskDriver`), with an actor per
 * task that calls the plugin.
 *
 * PD1: a task is started at most once, whatever crashes: the driver-task actor's record decides on the outcome of a start, and
 *      a run that is not known to have ended is looked up, never started again.
 * PD2: how a run ended is on disk before the plugin is told to forget it, so a later agent process knows it too.
 * PD3: an ended task is destroyed at once; its directories, output and record stay until the manager forgets it.
 */
import type { DriverTaskNews } from "../../machines/driver/task.machine.ts";
import { TaskConfig } from "../../proto/gen/nomad.ts";
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
} from "../agent/ports.ts";
import { DriverNetworks } from "./network.ts";
import type { DriverPluginActor, DriverPluginPorts } from "./plugin.ts";
import { DriverPreparation, type Prepared } from "./preparation.ts";
import { exitOf, isolationOf } from "./task-config.ts";
import { DriverTaskActor, driverTaskRecord } from "./task.ts";
import { RunRecords, type RunRecord } from "../agent/run-records.ts";
import type { TaskNetworks } from "../agent/task-networks.ts";
import type { UserOutcome } from "../agent/ports.ts";
import { sentence } from "../sentence.ts";

/** Interval of checking whether a task has become healthy, in milliseconds. */
const healthLookMs = 500;

type RunState =
  | { readonly kind: "starting" }
  | { readonly kind: "running" }
  | { readonly kind: "refused"; readonly reason: string }
  | { readonly kind: "ended"; readonly exit: TaskExit };

/** A task whose start was requested from the plugin, in this agent process or an earlier one. */
interface Run {
  readonly taskId: string;
  record: RunRecord;
  readonly actor: DriverTaskActor;
  state: RunState;
  /** Resolve when `state` leaves `starting`, and when it is final. */
  readonly settled: PromiseWithResolvers<void>;
  readonly ended: PromiseWithResolvers<TaskExit>;
  readonly destroyed: PromiseWithResolvers<void>;
}

export interface PluginDriverOptions {
  /** Its name in services: the plugin's own name. */
  readonly kind: string;
  readonly plugin: DriverPluginActor;
  readonly plugins: AgentPlugins;
  readonly facts: NodeFacts;
  /** Null: this node creates none. */
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
  readonly #preparation: DriverPreparation;
  readonly #records: RunRecords;

  constructor(ports: DriverPluginPorts, options: PluginDriverOptions) {
    this.kind = options.kind;
    this.#ports = ports;
    this.#options = options;
    this.#networks = new DriverNetworks({ ...options, log: ports.telemetry.log, clock: ports.clock });
    this.#preparation = new DriverPreparation({ ...options, networks: this.#networks });
    this.#records = new RunRecords(ports.disk);
  }

  /** Whether tasks can be started and stopped now. */
  get isServing(): boolean {
    return this.#options.plugin.client !== null;
  }

  /** The actor of a running task, for calls by others; null when it is not running. */
  running(taskId: string): DriverTaskActor | null {
    const run = this.#runs.get(taskId);
    return run?.state.kind === "running" ? run.actor : null;
  }

  /** The user of a command in one of its tasks, by the node's rules. */
  commandUser(requested: string): UserOutcome {
    const { plugin, plugins } = this.#options;
    if (requested === "") return { kind: "user", name: "" };
    if (plugin.description === null)
      return { kind: "refused", reason: `driver ${this.kind} is not running at the moment` };
    return plugins.homes.userOf(requested, isolationOf(plugin.description));
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
    // It failed before it was healthy: it never counted as running.
    if (run.state.kind === "ended" && healthOf(run) === "starting" && hasFailed(run.state.exit))
      return { kind: "refused", reason: `${this.kind}: ${endOf(run.state.exit)}` };
    return { kind: "started", pid: pidOf(run) };
  }

  async wait(taskId: string): Promise<TaskExit> {
    const run = this.#runs.get(taskId);
    if (run === undefined) return { code: -1, signal: "", reason: "the task is not running", lastOutput: "" };
    return run.ended.promise;
  }

  async find(taskId: string): Promise<FoundTask> {
    const found = await this.#inTurn(taskId, () => this.#known(taskId));
    if (found === null || "code" in found) {
      // Network of an earlier process for a task that it did not start, or that it could not remove after the task's end.
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
      await this.#records.remove(taskId);
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

  /** The engine's id of a task's container; empty when there is none. */
  containerOf(taskId: string): string {
    return this.#runs.get(taskId)?.actor.attributes["container_id"] ?? "";
  }

  /**
   * If the driver checks a task's health itself, as an engine does for containers, the task counts as running once it is
   * healthy; the driver ends an unhealthy one.
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

  async #prepare(task: DriverTask): Promise<DriverOutcome> {
    const outcome = await this.#preparation.prepare(task);
    if (outcome.kind === "refused") return { kind: "refused", reason: `${this.kind}: ${outcome.reason}` };
    this.#prepared.set(task.id, outcome);
    return { kind: "done" };
  }

  /** The run, or the reason why there is none. */
  async #start(task: DriverTask): Promise<Run | string> {
    if (this.#runs.has(task.id)) return `${this.kind}: the task was already started`;
    // It was prepared by an earlier process if there is nothing of it here.
    if (!this.#prepared.has(task.id)) {
      const outcome = await this.#prepare(task);
      if (outcome.kind === "refused") return outcome.reason;
    }
    const { config, wants } = this.#prepared.get(task.id) as Prepared;
    const { stopGraceMs, stopSignal } = wants;
    const env = task.traceparent === "" ? config.env : { ...config.env, TRACEPARENT: task.traceparent };
    const record: RunRecord = { id: config.id, stopSignal, stopGraceMs, exit: null };
    try {
      await this.#records.save(task.id, record);
    } catch (error) {
      await this.#networks.remove(task.id);
      return `${this.kind}: cannot record the task on this node: ${sentence(error)}`;
    }
    this.#prepared.delete(task.id);
    return this.#begin(task.id, record, TaskConfig.patch(config, { env }), null, task.traceparent);
  }

  #begin(
    taskId: string,
    record: RunRecord,
    config: TaskConfig,
    before: Awaited<ReturnType<typeof driverTaskRecord>>,
    traceparent = "",
  ): Run {
    const { plugin } = this.#options;
    const heard: DriverTaskNews[] = [];
    let run: Run | null = null;
    // The actor may report before there is a run.
    const onNews = (news: DriverTaskNews): void => {
      if (run === null) heard.push(news);
      else this.#hear(run, news);
    };
    const actor = new DriverTaskActor(this.#ports, { config, plugin, record: before, traceparent, onNews });
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

  /** The run of this or an earlier process; its exit if only that is known; null when it was never started. PD1 */
  async #known(taskId: string): Promise<Run | TaskExit | null> {
    const run = this.#runs.get(taskId);
    if (run !== undefined) return run;
    const record = await this.#records.load(taskId);
    if (record === null) return null;
    const before = await driverTaskRecord(this.#ports.disk, record.id);
    if (record.exit !== null && before === null) return record.exit;
    if (before === null) return null; // recorded, but its start was never requested
    const found = this.#begin(taskId, record, TaskConfig.create({ id: record.id }), before);
    if (record.exit !== null) {
      // It had ended, and the driver had not been told to forget it yet: its exit is already known. PD2
      found.state = { kind: "ended", exit: record.exit };
      found.settled.resolve();
      found.ended.resolve(record.exit);
      found.actor.stopTask("", 0);
      return found;
    }
    this.#options.plugins.homes
      .resume(taskId)
      .catch((error: unknown) =>
        this.#ports.telemetry.log.error({ error, task: taskId }, "lost the output of a running task"),
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
        // Every task waits until the driver is called, which is usually at once.
        if (this.#options.plugin.client !== null) return;
        this.#ports.telemetry.log.info(
          { task: run.taskId, driver: this.kind, reason: news.reason },
          "a task waits for its driver",
        );
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
          this.#ports.telemetry.log.error(
            { task: run.taskId, driver: this.kind, reason: news.reason },
            "cannot destroy a task",
          );
        void this.#networks.remove(run.taskId).then(() => run.destroyed.resolve());
    }
  }

  /** PD2, PD3. `refusal`: why it never ran. */
  async #finish(run: Run, exitOfRun: () => Promise<TaskExit>, refusal: string | null): Promise<void> {
    if (run.state.kind !== "ended") {
      // A failed start may have left processes, as may a task.
      const [, name = ""] = run.record.id.split("/");
      await this.#options.plugins.cgroups?.end(run.taskId, name);
      await this.#options.plugins.homes.end(run.taskId);
      const exit = await exitOfRun();
      run.record = { ...run.record, exit };
      try {
        await this.#records.save(run.taskId, run.record);
      } catch (error) {
        this.#ports.telemetry.log.error({ error, task: run.taskId }, "cannot record how a task ended");
      }
      run.state = refusal === null ? { kind: "ended", exit } : { kind: "refused", reason: refusal };
      run.settled.resolve();
      run.ended.resolve(exit);
    }
    run.actor.destroy();
  }

  /** Last output from the driver's files, for the exit of a failed task. */
  async #lastOutput(taskId: string): Promise<string> {
    return this.#options.plugins.homes.lastOutput(taskId).catch(() => "");
  }
}

/** The health according to the driver; empty when it reports none. */
function healthOf({ actor }: Run): string {
  return actor.attributes["health"] ?? "";
}

function hasFailed({ code, reason }: TaskExit): boolean {
  return code !== 0 || reason !== "";
}

function endOf({ code, reason }: TaskExit): string {
  return reason === "" ? `it exited with code ${code} before it was healthy` : reason;
}

/** 0 when the driver reports none. */
function pidOf({ actor }: Run): number {
  const pid = Number(actor.attributes["pid"] ?? "");
  return Number.isSafeInteger(pid) && pid > 0 ? pid : 0;
}

/** The part of an agent's ports that plugins need. */
export function driverPorts(ports: AgentPorts, plugins: AgentPlugins): DriverPluginPorts {
  const { clock, disk, host, random, telemetry } = ports;
  return { clock, disk, host, random, telemetry, launcher: plugins.launcher };
}
