/** The Driver service for a driver written in TypeScript. */
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
  type TaskCommandsService,
  type TaskConfig,
} from "../../../proto/gen/nomad.ts";
import { durationMs, timestampOf } from "../../../proto/nomad-time.ts";
import type { Logger } from "../../../runtime/ports/index.ts";
import { RpcError, Status, type CallContext, type ServiceHandlers, type Sink } from "../../../runtime/ports/rpc.ts";
import type { Driver, Fingerprint, RunningTask, TaskRequest } from "./driver.ts";
import { attachTask, execTask, execTaskAs, execTaskStreaming, exitResult } from "./exec.ts";
import { objectSpec, readConfig } from "./fields.ts";
import { TaskTable, type KnownTask } from "./tasks.ts";
import { statsOf } from "./usage.ts";

/** The version of our drivers' task states, which hosts return. A different version is a newer driver's, and refused. */
const handleVersion = 1;

/** The interval that Go drivers commonly use. */
const fingerprintIntervalMs = 30_000;
/** If the host requests none; Nomad requests one second. */
const statsIntervalMsDefault = 1_000;
const statsIntervalMsMin = 100;
/** Unread bytes of samples and events above which further ones are dropped. */
const unreadBytesMax = 64 * 1024;
const execTimeoutMsDefault = 30_000;

const health = {
  healthy: FingerprintResponse_HealthState.HEALTHY,
  unhealthy: FingerprintResponse_HealthState.UNHEALTHY,
  undetected: FingerprintResponse_HealthState.UNDETECTED,
} as const satisfies Record<Fingerprint["health"], FingerprintResponse_HealthState>;

/** A driver's errors reach its user; gRPC's own errors keep their code. */
function failure(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  return new RpcError(Status.UNKNOWN, error instanceof Error ? error.message : String(error));
}

async function asStatus<Result>(run: () => Result | Promise<Result>): Promise<Result> {
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
        asStatus(async () => {
          await this.#driver.shutdown?.();
          return ShutdownResponse.create();
        }),
      TaskConfigSchema: () => TaskConfigSchemaResponse.create({ spec: objectSpec(this.#driver.task) }),
      Capabilities: () => CapabilitiesResponse.create({ capabilities: this.#capabilities() }),
      Fingerprint: (_request, sink, call) => this.#fingerprints(sink, call),
      TaskEvents: (_request, sink, call) => this.#listen(sink, call),
      StartTask: ({ task }) => asStatus(() => this.#start(task)),
      RecoverTask: ({ handle }) => asStatus(() => this.#recover(handle)),
      WaitTask: ({ taskId }) =>
        asStatus(async () => {
          const { running } = tasks.get(taskId);
          const exit = await running.exited;
          return WaitTaskResponse.create({ result: exitResult(exit), err: exit.err ?? "" });
        }),
      StopTask: ({ taskId, timeout, signal }) =>
        asStatus(async () => {
          await tasks.stop(taskId, signal, durationMs(timeout, 0));
          return StopTaskResponse.create();
        }),
      DestroyTask: ({ taskId, force }) =>
        asStatus(async () => {
          await tasks.destroy(taskId, force);
          return DestroyTaskResponse.create();
        }),
      InspectTask: ({ taskId }) => asStatus(() => inspect(tasks.get(taskId))),
      TaskStats: ({ taskId, collectionInterval }, sink, call) => {
        const interval = durationMs(collectionInterval, statsIntervalMsDefault);
        this.#sample(tasks.get(taskId), Math.max(statsIntervalMsMin, interval), sink, call);
      },
      SignalTask: ({ taskId, signal }) =>
        asStatus(async () => {
          const { running } = tasks.get(taskId);
          if (running.signal === undefined) throw new Error("SignalTask is not supported by this driver");
          await running.signal(signal);
          return SignalTaskResponse.create();
        }),
      ExecTask: (request, call) =>
        asStatus(() => {
          const timeoutMs = durationMs(request.timeout, 0) || execTimeoutMsDefault;
          return execTask(tasks.get(request.taskId).running, request, timeoutMs, call.signal);
        }),
      ExecTaskStreaming: (requests, sink, call) =>
        asStatus(() => execTaskStreaming((taskId) => tasks.get(taskId).running, requests, sink, call)),
      CreateNetwork: (request) =>
        asStatus(() => {
          const { createNetwork } = this.#driver;
          if (createNetwork === undefined) throw new Error("CreateNetwork RPC not supported by driver");
          return createNetwork.call(this.#driver, request);
        }),
      DestroyNetwork: (request) =>
        asStatus(async () => {
          const { destroyNetwork } = this.#driver;
          if (destroyNetwork === undefined) throw new Error("DestroyNetwork RPC not supported by driver");
          await destroyNetwork.call(this.#driver, request);
          return DestroyNetworkResponse.create();
        }),
    };
  }

  commandHandlers(): ServiceHandlers<typeof TaskCommandsService> {
    return {
      Exec: (requests, sink, call) =>
        asStatus(() => execTaskAs((taskId) => this.#tasks.get(taskId).running, requests, sink, call)),
      Attach: (requests, sink, call) =>
        asStatus(() => attachTask((taskId) => this.#tasks.get(taskId).running, requests, sink, call)),
    };
  }

  /** Whether another process of this driver could replace this one: nothing runs, and exited tasks can be recovered. */
  get isSpare(): boolean {
    return this.#driver.recover === undefined ? this.#tasks.size === 0 : this.#tasks.running === 0;
  }

  #capabilities(): DriverCapabilities {
    return DriverCapabilities.create({ sendSignals: true, exec: true, ...this.#driver.capabilities });
  }

  /** One at once, then one per interval; also if the driver cannot determine it. */
  #fingerprints(sink: Sink<FingerprintResponse>, call: CallContext): void {
    const sample = async (): Promise<void> => {
      let found: FingerprintResponse;
      try {
        const reported = await this.#driver.fingerprint?.();
        found = fingerprintOf(reported ?? { health: "healthy", description: "ready" });
      } catch (error) {
        const { message } = failure(error);
        found = FingerprintResponse.create({ health: health.unhealthy, healthDescription: message, err: message });
      }
      if (sink.bufferedBytes() < unreadBytesMax) sink.write(found);
    };
    void sample();
    const timer = setInterval(() => void sample(), fingerprintIntervalMs);
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
    if (task === null) throw new Error("StartTask: missing task");
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
    if (handle === null || handle.config === null) throw new Error("RecoverTask: missing handle");
    const { config, version, driverState } = handle;
    if (this.#tasks.has(config.id)) return RecoverTaskResponse.create();
    if (version !== handleVersion)
      throw new Error(`the handle has version ${version}, but this driver supports version ${handleVersion}`);
    const { recover } = this.#driver;
    if (recover === undefined) throw new Error("this driver cannot recover tasks");
    let state: unknown;
    try {
      state = JSON.parse(Buffer.from(driverState).toString("utf8"));
    } catch (error) {
      throw new Error("cannot decode the handle's state", { cause: error });
    }
    await this.#tasks.add(config, (): RunningTask | Promise<RunningTask> =>
      recover.call(this.#driver, this.#request(config), state),
    );
    return RecoverTaskResponse.create();
  }

  #sample({ config, running }: KnownTask, intervalMs: number, sink: Sink<TaskStatsResponse>, call: CallContext): void {
    if (running.stats === undefined)
      throw new RpcError(Status.UNIMPLEMENTED, "this driver does not support statistics");
    let isSampling = false;
    const take = async (): Promise<void> => {
      // A sample may take longer than the interval; a host that does not read gets fewer samples.
      if (isSampling || sink.bufferedBytes() > unreadBytesMax) return;
      isSampling = true;
      try {
        const sample = await running.stats?.();
        if (sample !== undefined)
          sink.write(TaskStatsResponse.create({ stats: statsOf(config.id, sample, Date.now()) }));
      } catch (error) {
        this.#log.debug({ task: config.id, error }, "cannot get a task's statistics");
      }
      isSampling = false;
    };
    const timer = setInterval(() => void take(), intervalMs);
    void take();
    call.signal.addEventListener("abort", () => clearInterval(timer));
    void running.exited
      .catch(() => {})
      .then(() => {
        clearInterval(timer);
        sink.end();
      });
  }
}

/** Always contains both times: Nomad rejects a status without them. */
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
