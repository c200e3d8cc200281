/** Hosts the task chart for one task: calls its driver, keeps its record, reports its states. */
import { isEnded } from "../../machines/task.ts";
import { agentTaskMachine, isNews, type AgentTaskEvent, type TaskReport } from "../../machines/agent/task.machine.ts";
import { isDriverSpec } from "../../machines/driver/spec.ts";
import { areOfCluster, type TaskContainer } from "../../machines/driver/container-task.ts";
import type { HealthNews } from "../../machines/driver/health-check.machine.ts";
import { networkOf } from "../../machines/driver/task-network/plan.ts";
import { healthOf } from "../../machines/driver/health-spec.ts";
import { ContainerStatus, Task, TaskStatus, TaskState, type Config, type Secret } from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import type { HostedActor } from "../../runtime/host.ts";
import { inOwnTrace } from "../../runtime/observation/cause.ts";
import { spans } from "../../runtime/telemetry/spans.ts";
import { traceparentLabel, traceparentOf } from "../../runtime/telemetry/tracing.ts";
import type { CallTarget } from "./calls.ts";
import type { AgentDrivers } from "./drivers.ts";
import type { LogSource } from "./logs.ts";
import type { AgentPorts, Content, DriverTask, TaskDriver, TaskVolume } from "./ports.ts";
import type { StatusReports } from "./reports.ts";
import { HealthCheckActor } from "../driver/health-check.ts";
import type { Owner } from "../../runtime/host.ts";
import type { NodeVolumes } from "./node-volumes.ts";
import { sentence } from "../sentence.ts";
import { describeSpan, endSpan, startSpan } from "../tracing.ts";

/** Prefix of the records of tasks; the task's id follows. */
export const taskRecords = "task.";

export interface TaskOptions {
  readonly reports: StatusReports;
  readonly drivers: AgentDrivers;
  readonly nodeHostname: string;
  /** Secrets currently assigned to this node. */
  readonly secrets: ReadonlyMap<string, Secret>;
  readonly configs: ReadonlyMap<string, Config>;
  readonly volumes: NodeVolumes;
  /** Called when nothing of the task is left on this node. */
  readonly onForgotten: (taskId: string) => void;
}

export class TaskActor {
  readonly #ports: AgentPorts;
  readonly #options: TaskOptions;
  readonly #task: Task;
  readonly #actor: HostedActor<typeof agentTaskMachine>;
  #status: TaskStatus;
  #health: HealthCheckActor | null = null;
  #volumes: readonly TaskVolume[] = [];
  /** Writes of the record: one at a time, the newest status wins. */
  #saving: Promise<void> | null = null;
  #isDirty = false;
  #isStopped = false;
  #isForgotten = false;
  /** Trace context of the start, if recorded: later reports continue it. */
  #traceparent = "";

  /** `task` has the newest known status: from the disk, else as assigned. */
  constructor(ports: AgentPorts, options: TaskOptions, task: Task) {
    this.#ports = ports;
    this.#options = options;
    this.#task = task;
    this.#status = task.status ?? TaskStatus.create({ state: TaskState.ASSIGNED });
    const wasGivenVolumes = this.#status.state > TaskState.PREPARING && !isEnded(this.#status.state);
    if (wasGivenVolumes) options.volumes.hold(task);
    const { err, state } = this.#status;
    const input = {
      taskId: task.id,
      before: state,
      desired: task.desiredState,
      isChecked: healthOf(task.spec) !== null,
      // In earlier states, the error concerns the task's way to this node.
      flaw: state === TaskState.STARTING || state === TaskState.RUNNING ? err : "",
    };
    this.#actor = inOwnTrace(this.#parent, "", () =>
      ports.host.start(agentTaskMachine, `agent-task/${task.id}`, input, this.#owner()),
    );
  }

  get state(): TaskState {
    return this.#status.state;
  }

  /** Its output. */
  get source(): LogSource {
    const { id, serviceId } = this.#task;
    return {
      taskId: id,
      serviceId,
      read: (request) =>
        this.#driver?.output?.(id, { ...request, isOver: () => this.#isStopped || isEnded(this.state) }) ?? null,
    };
  }

  /** The target of calls to its driver. */
  get callable(): CallTarget {
    const driver = this.#options.drivers.pluginOf(this.#task);
    if (driver === null) return { reason: "calls are not supported: the task does not run on a driver plugin" };
    const running = driver.running(this.#task.id);
    if (running === null) return { reason: `task ${this.#task.id} is not running` };
    if (running.client === null) return { reason: `driver ${driver.kind} is not running at the moment` };
    return {
      client: running.client,
      driverTaskId: running.taskId,
      commandUser: (requested) => driver.commandUser(requested),
    };
  }

  /** Whether its driver is available to stop it. */
  get isReachable(): boolean {
    return this.#options.drivers.pluginOf(this.#task)?.isServing ?? true;
  }

  /** Null while no driver of this node runs such tasks. */
  get #driver(): TaskDriver | null {
    return this.#options.drivers.of(this.#task);
  }

  raiseDesired(desired: TaskState): void {
    this.#send({ type: "desired.raised", desired });
  }

  remove(): void {
    this.#send({ type: "removal.wanted" });
  }

  /** Stops the actor; the task itself keeps running. */
  stop(): void {
    this.#isStopped = true;
    this.#endCheck();
    this.#actor.stop();
  }

  #send(event: AgentTaskEvent): void {
    if (!this.#isStopped) inOwnTrace(this.#parent, "driver", () => this.#actor.send(event));
  }

  /** Trace context of the request that created the task; empty if it was not traced. */
  get #parent(): string {
    return this.#task.annotations?.labels[traceparentLabel] ?? "";
  }

  #owner(): Owner<typeof agentTaskMachine> {
    return {
      effects: {
        look: () => this.#answer(this.#look()),
        prepare: () => this.#answer(this.#prepare()),
        start: () => this.#answer(this.#start()),
        awaitExit: ({ pid }) => this.#answer(this.#awaitExit(pid)),
        stop: () => void this.#stop(),
        giveUpStart: () => this.#driver?.giveUpStart?.(this.#task.id),
        check: ({ wasHealthy }) => this.#check(wasHealthy),
        endCheck: () => this.#endCheck(),
        forget: () => void this.#forget(),
        report: (report) => this.#report(report),
      },
    };
  }

  /** An exception of a driver must not end the agent: the task is refused with its message. */
  #answer(outcome: Promise<AgentTaskEvent>): void {
    outcome.then(
      (event) => this.#send(event),
      (error: unknown) => this.#send({ type: "run.refused", reason: sentence(error) }),
    );
  }

  async #look(): Promise<AgentTaskEvent> {
    // A plugin that was just started reports its name later.
    if (this.#driver === null) await this.#options.drivers.settled();
    const found = await this.#runtime().find(this.#task.id);
    switch (found.kind) {
      case "absent":
        return { type: "run.absent" };
      case "running":
        return { type: "run.found", pid: found.pid };
      case "exited":
        return { type: "run.exited", pid: found.pid, exit: found.exit };
    }
  }

  async #prepare(): Promise<AgentTaskEvent> {
    try {
      await this.#save();
    } catch (error) {
      return { type: "run.refused", reason: `cannot record the task on this node: ${sentence(error)}` };
    }
    // A task that is over was already released, and would wait for its volumes, or keep them, forever.
    if (isEnded(this.#status.state) || this.#isForgotten)
      return { type: "run.refused", reason: "the task is already over" };
    this.#volumes = await this.#options.volumes.whenReady(this.#task);
    const outcome = await this.#runtime().prepare(this.#describe(""));
    return outcome.kind === "done" ? { type: "run.prepared" } : { type: "run.refused", reason: outcome.reason };
  }

  async #start(): Promise<AgentTaskEvent> {
    // Only a task with a trace is traced: a root span for every task of a big service would be useless.
    const parent = this.#parent;
    const span = parent === "" ? null : startSpan(this.#ports, spans.taskStart, parent);
    const traceparent = span === null ? "" : traceparentOf(span);
    if (span?.isRecording() === true) {
      describeSpan(span, spans.taskStart, {
        "muster.task.id": this.#task.id,
        "muster.service.id": this.#task.serviceId,
        "muster.node.id": this.#task.nodeId,
      });
      this.#traceparent = traceparent;
    }
    let failure: string | null = "the driver failed";
    try {
      const outcome = await this.#runtime().start(this.#describe(traceparent));
      failure = outcome.kind === "started" ? null : outcome.reason;
      return outcome.kind === "started"
        ? { type: "run.started", pid: outcome.pid }
        : { type: "run.refused", reason: outcome.reason };
    } finally {
      if (span !== null) endSpan(this.#ports, span, failure);
    }
  }

  async #awaitExit(pid: number): Promise<AgentTaskEvent> {
    try {
      return { type: "run.exited", pid, exit: await this.#runtime().wait(this.#task.id) };
    } catch (error) {
      return {
        type: "run.exited",
        pid,
        exit: { code: -1, signal: "", reason: `lost track of the process: ${sentence(error)}`, lastOutput: "" },
      };
    }
  }

  #check(wasHealthy: boolean): void {
    const check = healthOf(this.#task.spec);
    if (check === null || this.#health !== null) return;
    const { id } = this.#task;
    this.#health = new HealthCheckActor(this.#ports, {
      taskId: id,
      check,
      wasHealthy,
      target: () => this.callable,
      address: () => this.#driver?.address?.(id) ?? null,
      onNews: (news) => this.#send(healthEvent(news)),
    });
  }

  #endCheck(): void {
    this.#health?.stop();
    this.#health = null;
  }

  async #stop(): Promise<void> {
    // The reason for the stop must be on disk before the exit. K6
    if (this.#status.err !== "") await this.#saving?.catch(() => {});
    try {
      const exit = (await this.#driver?.stop(this.#task.id)) ?? null;
      this.#send({ type: "run.stopped", code: exit?.code ?? 0 });
    } catch (error) {
      // It is unknown whether something still runs, so the task stays in its state, visibly.
      this.#ports.telemetry.log.error({ error, task: this.#task.id }, "cannot stop a task");
    }
  }

  async #forget(): Promise<void> {
    const { disk, telemetry } = this.#ports;
    const { id } = this.#task;
    this.#options.reports.forget(id);
    this.#isForgotten = true;
    this.#options.volumes.release(id);
    try {
      await this.#driver?.remove(id);
      this.#isDirty = false;
      await this.#saving?.catch(() => {});
      await disk.remove(taskRecords + id);
    } catch (error) {
      // Remains are found at the next start and removed then, since the manager no longer assigns the task.
      telemetry.log.error({ error, task: id }, "cannot remove the remains of a task from this node");
    }
    this.#send({ type: "run.forgotten" });
    this.stop();
    this.#options.onForgotten(id);
  }

  #report(report: TaskReport): void {
    if (!isNews(this.#status, report)) return;
    const { id } = this.#task;
    const { exitCode, pid } = report;
    const containerId = this.#options.drivers.pluginOf(this.#task)?.containerOf(id) ?? "";
    // Only the container status shows that something ran; it is empty for a driver without processes.
    const wasUp = [report.state, this.#status.state].includes(TaskState.RUNNING);
    const hasRun = wasUp || pid !== 0 || exitCode !== 0 || containerId !== "";
    this.#status = TaskStatus.create({
      timestamp: timestampOf(this.#ports.clock.now()),
      state: report.state,
      message: report.message,
      err: report.err,
      container: hasRun ? ContainerStatus.create({ containerId, pid, exitCode }) : null,
    });
    this.#options.reports.report(id, this.#status, this.#traceparent);
    if (isEnded(report.state)) this.#options.volumes.release(id);
    this.#save().catch((error: unknown) =>
      this.#ports.telemetry.log.error({ error, task: id }, "cannot record a task's state"),
    );
  }

  /** Resolves when the newest status is on the disk. */
  #save(): Promise<void> {
    this.#isDirty = true;
    this.#saving ??= this.#write().finally(() => (this.#saving = null));
    return this.#saving;
  }

  async #write(): Promise<void> {
    while (this.#isDirty) {
      this.#isDirty = false;
      await this.#ports.disk.save(
        taskRecords + this.#task.id,
        Task.encode(Task.patch(this.#task, { status: this.#status })),
      );
    }
  }

  #runtime(): TaskDriver {
    const driver = this.#driver;
    if (driver === null) throw new Error(unsupported(this.#task, this.#options.drivers.kinds()));
    return driver;
  }

  #describe(traceparent: string): DriverTask {
    const { id, annotations, nodeId, serviceAnnotations, serviceId, slot, spec } = this.#task;
    const { facts } = this.#ports;
    const serviceName = serviceAnnotations?.name ?? "";
    const container = containerOf(this.#task);
    const ids = new Set([
      ...(spec?.resourceReferences ?? []).map(({ resourceId }) => resourceId),
      ...(spec?.container?.secrets ?? []).map(({ secretId }) => secretId),
      ...(spec?.container?.configs ?? []).map(({ configId }) => configId),
    ]);
    return {
      id,
      // As SwarmKit names them (worker protocol §5.6).
      name: annotations?.name || `${serviceName}.${slot === 0 ? nodeId : slot}.${id}`,
      slot,
      serviceId,
      serviceName,
      serviceLabels: serviceAnnotations?.labels ?? {},
      nodeId,
      nodeHostname: this.#options.nodeHostname,
      nodePlatform: { architecture: facts.architecture, os: facts.os },
      payload: spec?.generic?.payload ?? null,
      ...(container === null ? {} : { container }),
      secrets: contents(this.#options.secrets, ids, id),
      configs: contents(this.#options.configs, ids, id),
      // A container's driver handles networks of the node alone.
      network: container === null || areOfCluster(container.networks) ? networkOf(this.#task) : { kind: "none" },
      volumes: this.#volumes,
      traceparent,
      resources: {
        nanoCpus: spec?.resources?.reservations?.nanoCpus || spec?.resources?.limits?.nanoCpus || 0,
        nanoCpusLimit: spec?.resources?.limits?.nanoCpus ?? 0,
        memoryBytes: spec?.resources?.reservations?.memoryBytes ?? 0,
        memoryLimitBytes: spec?.resources?.limits?.memoryBytes ?? 0,
      },
      genericResources: this.#task.assignedGenericResources,
    };
  }
}

function healthEvent(news: HealthNews): AgentTaskEvent {
  switch (news.kind) {
    case "healthy":
      return { type: "health.passed" };
    case "failing":
      return { type: "health.missed", reason: news.reason };
    case "unhealthy":
      return { type: "health.lost", reason: news.reason };
  }
}

/** Null for a task without a container. */
function containerOf({ endpoint, logDriver, networks, spec }: Task): TaskContainer | null {
  if (spec?.container == null) return null;
  return {
    spec: spec.container,
    networks,
    ports: endpoint?.ports ?? [],
    logDriver: spec.logDriver ?? logDriver,
    resources: spec.resources,
  };
}

/**
 * Only those that the task references; a secret for this one task has the task's id appended to its own (worker protocol §4.6).
 */
function contents(
  assigned: ReadonlyMap<string, Secret | Config>,
  ids: ReadonlySet<string>,
  taskId: string,
): ReadonlyMap<string, Content> {
  const found = new Map<string, Content>();
  for (const id of ids) {
    const spec = (assigned.get(`${id}.${taskId}`) ?? assigned.get(id))?.spec ?? null;
    if (spec !== null) found.set(id, { data: spec.data, template: spec.templating?.name ?? null });
  }
  return found;
}

function unsupported({ spec }: Task, known: readonly string[]): string {
  const kinds = known.join(", ");
  const wanted = spec?.generic
    ? isDriverSpec(spec.generic.payload?.type_url ?? "")
      ? `tasks of a driver plugin '${spec.generic.kind}'`
      : `tasks of kind '${spec.generic.kind}'`
    : spec?.container
      ? "containers"
      : spec?.attachment
        ? "network attachments"
        : "tasks without a runtime";
  return `unsupported runtime: this node runs tasks of kind ${kinds}, not ${wanted}`;
}
