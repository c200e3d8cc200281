/** The Driver service over a driver written in TypeScript. */
import {
  Attribute,
  CapabilitiesResponse,
  DestroyTaskResponse,
  DriverCapabilities,
  DriverTaskEvent,
  FingerprintResponse,
  FingerprintResponse_HealthState,
  InitResponse,
  InspectTaskResponse,
  RecoverTaskResponse,
  ShutdownResponse,
  SignalTaskResponse,
  StartTaskResponse,
  StopTaskResponse,
  TaskConfigSchemaResponse,
  TaskDriverStatus,
  TaskHandle,
  TaskState,
  TaskStatsResponse,
  TaskStatus,
  WaitTaskResponse,
  DestroyNetworkResponse,
  type DriverService,
  type TaskConfig,
} from "../../../proto/gen/nomad.ts";
import { durationMs, timestampOf } from "../../../proto/nomad-time.ts";
import type { Logger } from "../../../runtime/ports.ts";
import { RpcError, Status, type CallContext, type ServiceHandlers, type Sink } from "../../../runtime/rpc.ts";
import type { Driver, Fingerprint, RunningTask, TaskRequest } from "./driver.ts";
import { execTask, execTaskStreaming, exitResult } from "./exec.ts";
import { objectSpec, readConfig } from "./fields.ts";
import { TaskTable, type KnownTask } from "./tasks.ts";
import { statsOf } from "./usage.ts";

/** Of the states that drivers made here keep; a host hands it back. Another is a later life's, and refused. */
const handleVersion = 1;

/** What the Go drivers of the field use. */
const fingerprintIntervalMsDefault = 30_000;
/** Where a host does not say; Nomad asks for every second. */
const statsIntervalMsDefault = 1_000;
const statsIntervalMsMin = 100;
/** Samples and events that a host has not taken: beyond, further ones are left out rather than kept. */
const unreadBytesMax = 64 * 1024;
const execTimeoutMsDefault = 30_000;

const health = {
  healthy: FingerprintResponse_HealthState.HEALTHY,
  unhealthy: FingerprintResponse_HealthState.UNHEALTHY,
  undetected: FingerprintResponse_HealthState.UNDETECTED,
} as const satisfies Record<Fingerprint["health"], FingerprintResponse_HealthState>;

/** What a driver throws reaches its user; gRPC's own errors keep their code. */
function failure(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  return new RpcError(Status.UNKNOWN, error instanceof Error ? error.message : String(error));
}

async function told<Result>(run: () => Result | Promise<Result>): Promise<Result> {
  try {
    return await run();
  } catch (error) {
    throw failure(error);
  }
}

function fingerprintOf(found: Fingerprint): FingerprintResponse {
  const attributes = Object.entries(found.attributes ?? {}).map(([name, value]) => {
    if (typeof value === "string") return [name, Attribute.create({ stringVal: value })];
    if (typeof value === "boolean") return [name, Attribute.create({ boolVal: value })];
    return [name, Attribute.create(Number.isInteger(value) ? { intVal: value } : { floatVal: value })];
  });
  return FingerprintResponse.create({
    health: health[found.health],
    healthDescription: found.description,
    attributes: Object.fromEntries(attributes) as FingerprintResponse["attributes"],
  });
}

export class DriverServer {
  readonly #driver: Driver;
  readonly #log: Logger;
  readonly #tasks = new TaskTable();
  readonly #listeners = new Set<Sink<DriverTaskEvent>>();

  constructor(driver: Driver, log: Logger) {
    this.#driver = driver;
    this.#log = log;
  }

  handlers(): ServiceHandlers<typeof DriverService> {
    const tasks = this.#tasks;
    return {
      Init: () => InitResponse.create(),
      Shutdown: () =>
        told(async () => {
          await this.#driver.shutdown?.();
          return ShutdownResponse.create();
        }),
      TaskConfigSchema: () => TaskConfigSchemaResponse.create({ spec: objectSpec(this.#driver.task) }),
      Capabilities: () => CapabilitiesResponse.create({ capabilities: this.#capabilities() }),
      Fingerprint: (_request, sink, call) => this.#fingerprints(sink, call),
      TaskEvents: (_request, sink, call) => this.#listen(sink, call),
      StartTask: ({ task }) => told(() => this.#start(task)),
      RecoverTask: ({ handle }) => told(() => this.#recover(handle)),
      WaitTask: ({ taskId }) =>
        told(async () => {
          const { running } = tasks.get(taskId);
          const exit = await running.exited;
          return WaitTaskResponse.create({ result: exitResult(exit), err: exit.err ?? "" });
        }),
      StopTask: ({ taskId, timeout, signal }) =>
        told(async () => {
          await tasks.stop(taskId, signal, durationMs(timeout, 0));
          return StopTaskResponse.create();
        }),
      DestroyTask: ({ taskId, force }) =>
        told(async () => {
          await tasks.destroy(taskId, force);
          return DestroyTaskResponse.create();
        }),
      InspectTask: ({ taskId }) => told(() => inspect(tasks.get(taskId))),
      TaskStats: ({ taskId, collectionInterval }, sink, call) => {
        const interval = durationMs(collectionInterval, statsIntervalMsDefault);
        this.#sample(tasks.get(taskId), Math.max(statsIntervalMsMin, interval), sink, call);
      },
      SignalTask: ({ taskId, signal }) =>
        told(async () => {
          const { running } = tasks.get(taskId);
          if (running.signal === undefined) throw new Error("SignalTask is not supported by this driver");
          await running.signal(signal);
          return SignalTaskResponse.create();
        }),
      ExecTask: (request, call) =>
        told(() => {
          const timeoutMs = durationMs(request.timeout, 0) || execTimeoutMsDefault;
          return execTask(tasks.get(request.taskId).running, request, timeoutMs, call.signal);
        }),
      ExecTaskStreaming: (requests, sink, call) =>
        told(() => execTaskStreaming((taskId) => tasks.get(taskId).running, requests, sink, call)),
      CreateNetwork: (request) =>
        told(() => {
          const { createNetwork } = this.#driver;
          if (createNetwork === undefined) throw new Error("CreateNetwork RPC not supported by driver");
          return createNetwork.call(this.#driver, request);
        }),
      DestroyNetwork: (request) =>
        told(async () => {
          const { destroyNetwork } = this.#driver;
          if (destroyNetwork === undefined) throw new Error("DestroyNetwork RPC not supported by driver");
          await destroyNetwork.call(this.#driver, request);
          return DestroyNetworkResponse.create();
        }),
    };
  }

  /** Whether another process of this driver can do all that this one can: it runs nothing, and what has ended can be recovered. */
  get isSpare(): boolean {
    return this.#driver.recover === undefined ? this.#tasks.size === 0 : this.#tasks.running === 0;
  }

  #capabilities(): DriverCapabilities {
    return DriverCapabilities.create({ sendSignals: true, exec: true, ...this.#driver.capabilities });
  }

  /** One at once, then as often as the driver wants; also when the driver cannot tell. */
  #fingerprints(sink: Sink<FingerprintResponse>, call: CallContext): void {
    const look = async (): Promise<void> => {
      let found: FingerprintResponse;
      try {
        const looked = await this.#driver.fingerprint?.();
        found = fingerprintOf(looked ?? { health: "healthy", description: "ready" });
      } catch (error) {
        const { message } = failure(error);
        found = FingerprintResponse.create({ health: health.unhealthy, healthDescription: message, err: message });
      }
      if (sink.bufferedBytes() < unreadBytesMax) sink.write(found);
    };
    void look();
    const interval = this.#driver.fingerprintIntervalMs ?? fingerprintIntervalMsDefault;
    const timer = setInterval(() => void look(), interval);
    call.signal.addEventListener("abort", () => clearInterval(timer));
  }

  #listen(sink: Sink<DriverTaskEvent>, call: CallContext): void {
    this.#listeners.add(sink);
    call.signal.addEventListener("abort", () => this.#listeners.delete(sink));
  }

  #request(task: TaskConfig): TaskRequest<never> {
    return {
      id: task.id,
      config: readConfig(this.#driver.task, task.msgpackDriverConfig) as never,
      task,
      log: this.#log,
      tell: (message, annotations = {}) => {
        const event = DriverTaskEvent.create({
          taskId: task.id,
          allocId: task.allocId,
          taskName: task.name,
          timestamp: timestampOf(Date.now()),
          message,
          annotations,
        });
        for (const sink of this.#listeners) if (sink.bufferedBytes() < unreadBytesMax) sink.write(event);
      },
    };
  }

  async #start(task: TaskConfig | null): Promise<StartTaskResponse> {
    if (task === null) throw new Error("StartTask without a task");
    const { running } = await this.#tasks.add(task, () => this.#driver.start(this.#request(task)));
    return StartTaskResponse.create({
      handle: TaskHandle.create({
        version: handleVersion,
        config: task,
        state: TaskState.RUNNING,
        driverState: Buffer.from(JSON.stringify(running.state ?? null), "utf8"),
      }),
      networkOverride: running.network ?? null,
    });
  }

  async #recover(handle: TaskHandle | null): Promise<RecoverTaskResponse> {
    if (handle === null || handle.config === null) throw new Error("RecoverTask without a handle");
    const { config, version, driverState } = handle;
    if (this.#tasks.has(config.id)) return RecoverTaskResponse.create();
    if (version !== handleVersion)
      throw new Error(`the handle has version ${version}: this driver knows version ${handleVersion}`);
    const { recover } = this.#driver;
    if (recover === undefined) throw new Error("tasks of this driver do not outlive it");
    let state: unknown;
    try {
      state = JSON.parse(Buffer.from(driverState).toString("utf8"));
    } catch (error) {
      throw new Error("the handle's state cannot be read", { cause: error });
    }
    await this.#tasks.add(config, (): RunningTask | Promise<RunningTask> =>
      recover.call(this.#driver, this.#request(config), state),
    );
    return RecoverTaskResponse.create();
  }

  #sample({ config, running }: KnownTask, intervalMs: number, sink: Sink<TaskStatsResponse>, call: CallContext): void {
    if (running.stats === undefined) throw new RpcError(Status.UNIMPLEMENTED, "this driver has no statistics");
    let isLooking = false;
    const look = async (): Promise<void> => {
      // A sample that takes longer than the interval is not overtaken; a host that does not read gets fewer.
      if (isLooking || sink.bufferedBytes() > unreadBytesMax) return;
      isLooking = true;
      try {
        const sample = await running.stats?.();
        if (sample !== undefined)
          sink.write(TaskStatsResponse.create({ stats: statsOf(config.id, sample, Date.now()) }));
      } catch (error) {
        this.#log.debug({ task: config.id, error }, "no statistics of a task");
      }
      isLooking = false;
    };
    const timer = setInterval(() => void look(), intervalMs);
    void look();
    call.signal.addEventListener("abort", () => clearInterval(timer));
    void running.exited
      .catch(() => {})
      .then(() => {
        clearInterval(timer);
        sink.end();
      });
  }
}

/** Both times are always there: Nomad refuses a status without. */
function inspect({ config, running, startedAtMs, exit, exitedAtMs }: KnownTask): InspectTaskResponse {
  return InspectTaskResponse.create({
    task: TaskStatus.create({
      id: config.id,
      name: config.name,
      state: exit === null ? TaskState.RUNNING : TaskState.EXITED,
      startedAt: timestampOf(startedAtMs),
      completedAt: timestampOf(exitedAtMs),
      result: exitResult(exit ?? { exitCode: 0, signal: 0, oomKilled: false }),
    }),
    driver: TaskDriverStatus.create({ attributes: running.attributes ?? {} }),
    networkOverride: running.network ?? null,
  });
}
