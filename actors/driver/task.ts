/** Hosts the chart of one task on a driver plugin: calls the plugin, keeps the task's handle. */
import {
  driverTaskMachine,
  type DriverTaskEvent,
  type DriverTaskInput,
  type DriverTaskNews,
} from "../../machines/driver/task.machine.ts";
import type { TaskConfig } from "../../proto/gen/nomad.ts";
import { inOwnTrace } from "../../runtime/observation/cause.ts";
import type { HostedActor } from "../../runtime/host.ts";
import { isPluginGone, isUnknownTask, type DriverClient } from "../../runtime/ports/plugins.ts";
import { isRecoverable } from "../../runtime/recoverable.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { DriverPluginActor, DriverPluginPorts } from "./plugin.ts";
import type { Owner } from "../../runtime/host.ts";
import { spans } from "../../runtime/telemetry/spans.ts";
import { sentence } from "../sentence.ts";
import { continueSpan, describeSpan, endSpan } from "../tracing.ts";

/** Prefix of the records of tasks on drivers; the task's id, encoded as a name, follows. */
export const driverTaskRecords = "driver-task.";

interface DriverTaskOptions {
  readonly config: TaskConfig;
  readonly plugin: DriverPluginActor;
  /** Record of an earlier agent; null for a new task. */
  readonly record: DriverTaskRecord | null;
  /** W3C trace context of the request that created the task; empty or unset: it was not traced. */
  readonly traceparent?: string;
  readonly onNews: (news: DriverTaskNews) => void;
}

/** A task whose start was requested; with a handle once it is running. */
interface DriverTaskRecord {
  readonly handle: Uint8Array | null;
  /** The task's own address, as reported by its driver; empty: none. */
  readonly address: string;
}

/**
 * First byte of a record: `starting`: no handle; `started`: a handle follows; `startedAt`: the length of an address in bytes,
 * the address, and a handle.
 */
const recordKinds = { starting: 0, started: 1, startedAt: 2 } as const;
const startingRecord = Uint8Array.of(recordKinds.starting);
/** Maximum length of an address's text. */
const addressBytesMax = 255;

function startedRecord(handle: Uint8Array, address: string): Uint8Array {
  const place = new TextEncoder().encode(address);
  const isKept = place.length > 0 && place.length <= addressBytesMax;
  const head = isKept ? [recordKinds.startedAt, place.length, ...place] : [recordKinds.started];
  const record = new Uint8Array(head.length + handle.length);
  record.set(head);
  record.set(handle, head.length);
  return record;
}

function recordOf(bytes: Uint8Array): DriverTaskRecord {
  switch (bytes[0]) {
    case recordKinds.started:
      return { handle: bytes.slice(1), address: "" };
    case recordKinds.startedAt: {
      const end = 2 + (bytes[1] ?? 0);
      return { handle: bytes.slice(end), address: new TextDecoder().decode(bytes.subarray(2, end)) };
    }
    default:
      return { handle: null, address: "" };
  }
}

export async function driverTaskRecord(
  disk: DriverPluginPorts["disk"],
  taskId: string,
): Promise<DriverTaskRecord | null> {
  const bytes = await disk.load(recordName(taskId));
  return bytes === null ? null : recordOf(bytes);
}

/** Names of records have letters, digits and a few other characters; a task's id has slashes. */
function recordName(taskId: string): string {
  return driverTaskRecords + taskId.replaceAll(/[^A-Za-z0-9-]/g, (sign) => `_${sign.codePointAt(0)?.toString(16)}_`);
}

export class DriverTaskActor {
  readonly #ports: DriverPluginPorts;
  readonly #options: DriverTaskOptions;
  readonly #actor: HostedActor<typeof driverTaskMachine>;
  #handle: Uint8Array | null;
  #address: string;
  #attributes: Readonly<Record<string, string>> = {};
  #isStopped = false;

  constructor(ports: DriverPluginPorts, options: DriverTaskOptions) {
    this.#ports = ports;
    this.#options = options;
    const { config, record } = options;
    this.#handle = record?.handle ?? null;
    this.#address = record?.address ?? "";
    const before: DriverTaskInput["before"] = record === null ? "new" : record.handle === null ? "doubtful" : "started";
    this.#actor = inOwnTrace(options.traceparent ?? "", "agent-task", () =>
      ports.host.start(driverTaskMachine, `driver-task/${config.id}`, { taskId: config.id, before }, this.#owner()),
    );
  }

  get taskId(): string {
    return this.#options.config.id;
  }

  /** The client of its plugin; null while there is none. */
  get client(): DriverClient | null {
    return this.#options.plugin.client;
  }

  /** Its own address, as reported by its driver on start; empty: none. */
  get address(): string {
    return this.#address;
  }

  /** The driver's attributes of the running task, for people: the container's id, the process's. */
  get attributes(): Readonly<Record<string, string>> {
    return this.#attributes;
  }

  /** Empty signal: the driver's own choice. */
  stopTask(signal: string, timeoutMs: number): void {
    this.#send({ type: "stop.wanted", signal, timeoutMs });
  }

  /** For a task that has ended. */
  destroy(): void {
    this.#send({ type: "destroy.wanted" });
  }

  /** Stops the actor; the task itself keeps running. */
  stop(): void {
    this.#isStopped = true;
    this.#actor.stop();
  }

  #send(event: DriverTaskEvent): void {
    // An answer may arrive after the task was destroyed.
    if (!this.#isStopped) inOwnTrace(this.#options.traceparent ?? "", "plugin", () => this.#actor.send(event));
  }

  #owner(): Owner<typeof driverTaskMachine> {
    return {
      effects: {
        startTask: () => this.#answer(this.#start(), (error) => this.#refusedStart(error)),
        recoverTask: () =>
          this.#answer(this.#recover(), (error) => ({ type: "recover.refused", reason: sentence(error) })),
        waitTask: () => this.#answer(this.#wait(), (error) => unseen(sentence(error))),
        stopTask: ({ signal, timeoutMs }) =>
          this.#answer(this.#stopTask(signal, timeoutMs), (error) => ({
            type: "stop.refused",
            reason: sentence(error),
          })),
        destroyTask: () =>
          this.#answer(this.#destroy(), (error) => ({ type: "destroy.refused", reason: sentence(error) })),
        awaitPlugin: () => this.#options.plugin.whenServing(() => this.#send({ type: "plugin.ready" })),
        announce: (news) => this.#announce(news),
      },
    };
  }

  #answer(outcome: Promise<DriverTaskEvent>, refused: (error: unknown) => DriverTaskEvent): void {
    outcome.then(
      (event) => this.#send(event),
      (error: unknown) =>
        this.#send(isPluginGone(error) ? { type: "call.lost", reason: sentence(error) } : refused(error)),
    );
  }

  #driver(): DriverClient {
    const { client } = this.#options.plugin;
    if (client === null) throw new RpcError(Status.UNAVAILABLE, "the driver is not running");
    return client;
  }

  async #start(): Promise<DriverTaskEvent> {
    const { disk } = this.#ports;
    const driver = this.#driver();
    // Before the call: an agent that dies in between must know that the task may run.
    await disk.save(recordName(this.taskId), startingRecord);
    const { handle, networkOverride } = await driver.startTask(this.#options.config);
    // T5: the start was abandoned, and the task was destroyed before it existed.
    if (!this.#isStopped && !this.#actor.snapshot.matches("starting")) {
      await driver.destroyTask(this.taskId, true);
      return { type: "start.refused", reason: "the task was stopped", isRecoverable: false };
    }
    this.#handle = handle;
    this.#address = networkOverride?.addr ?? "";
    const record = startedRecord(handle, this.#address);
    await Promise.all([disk.save(recordName(this.taskId), record), this.#inspect(driver)]);
    return { type: "task.started" };
  }

  /** Reads the driver's attributes; resolves in any case. */
  async inspect(): Promise<void> {
    const { client } = this.#options.plugin;
    if (client !== null) await this.#inspect(client);
  }

  /** Missing attributes are ignored. */
  async #inspect(driver: DriverClient): Promise<void> {
    try {
      this.#attributes = (await driver.inspectTask(this.taskId)).driver?.attributes ?? {};
    } catch (error) {
      this.#ports.telemetry.log.debug(
        { error: sentence(error), task: this.taskId },
        "a driver did not describe a task",
      );
    }
  }

  #refusedStart(error: unknown): DriverTaskEvent {
    if (!(error instanceof RpcError)) return { type: "start.refused", reason: sentence(error), isRecoverable: false };
    return { type: "start.refused", reason: error.message, isRecoverable: isRecoverable(error) };
  }

  async #recover(): Promise<DriverTaskEvent> {
    if (this.#handle === null) throw new Error("its handle was not recorded");
    const driver = this.#driver();
    // Known to the agent that started the task.
    const span = continueSpan(this.#ports, spans.taskRecover, this.#options.config.env["TRACEPARENT"] ?? "");
    if (span !== null) describeSpan(span, spans.taskRecover, { "muster.task.id": this.taskId.split("/")[0] ?? "" });
    try {
      await driver.recoverTask(this.#handle);
      if (span !== null) endSpan(this.#ports, span);
    } catch (error) {
      if (span !== null) endSpan(this.#ports, span, error);
      throw error;
    }
    await this.#inspect(driver);
    return { type: "task.recovered" };
  }

  async #wait(): Promise<DriverTaskEvent> {
    const { result, err } = await this.#driver().waitTask(this.taskId);
    if (result === null) return unseen(err || "the driver did not report how the task ended");
    const { exitCode: code, signal, oomKilled } = result;
    return { type: "task.exited", exit: { code, signal, oomKilled, err } };
  }

  async #stopTask(signal: string, timeoutMs: number): Promise<DriverTaskEvent> {
    await this.#driver().stopTask(this.taskId, timeoutMs, signal);
    return { type: "stop.done" };
  }

  async #destroy(): Promise<DriverTaskEvent> {
    try {
      await this.#driver().destroyTask(this.taskId, true);
    } catch (error) {
      if (!isUnknownTask(error)) throw error;
    }
    return { type: "task.destroyed" };
  }

  #announce(news: DriverTaskNews): void {
    this.#options.onNews(news);
    if (news.kind !== "destroyed") return;
    const { disk, telemetry } = this.#ports;
    disk.remove(recordName(this.taskId)).catch((error: unknown) => {
      // A later agent finds it and destroys the task again, which is harmless.
      telemetry.log.warn({ error, task: this.taskId }, "cannot remove a task's record");
    });
  }
}

function unseen(err: string): DriverTaskEvent {
  return { type: "task.exited", exit: { code: -1, signal: 0, oomKilled: false, err } };
}
