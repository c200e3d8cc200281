/** `muster service logs`: prints the output of tasks, and with `-f` follows it. */
import { nodeNames } from "../../machines/node-names.ts";
import {
  ListTasksRequest_Filters,
  LogSelector,
  LogsService,
  LogSubscriptionOptions,
  SubscribeLogsRequest,
  Timestamp,
  type LogMessage,
  type Service,
  type SubscribeLogsMessage,
  type Task,
} from "../../proto/gen/messages.ts";
import { durationMs, timestampOf } from "../../proto/time.ts";
import type { RpcError } from "../../runtime/ports/rpc.ts";
import { command } from "../command.ts";
import { UsageError } from "../../lib/user-error.ts";
import { lineText, originText, outputOf, type LineFormat, type LineOrigin } from "../log-lines.ts";
import {
  findService,
  findTask,
  listNodes,
  listTasks,
  serviceName,
  withManager,
  type ManagerClient,
} from "../manager-client.ts";
import type { Shell } from "../shell.ts";
import { NotThereError, UserError } from "../../lib/user-error.ts";
import { parseDuration } from "../values.ts";

/** Messages waiting to be printed before the manager is paused. A message has about 64 KiB. */
const waitingMax = 8;
/** Messages of the manager itself have no task. */
const noticeTaskId = "";

const flags = {
  follow: { type: "boolean", short: "f", help: "Follow log output" },
  tail: {
    type: "string",
    short: "n",
    value: "N",
    help: "Number of lines to show from the end of each task's output, or 'all'",
  },
  since: {
    type: "string",
    value: "TIME",
    help: "Show lines since a timestamp (2026-01-02T15:04:05Z) or relative time (10m)",
  },
  timestamps: { type: "boolean", short: "t", help: "Show timestamps" },
  details: { type: "boolean", help: "Show extra details that the log driver provides" },
  "no-trunc": { type: "boolean", help: "Do not truncate IDs" },
  "no-resolve": { type: "boolean", help: "Do not map IDs to names" },
  "no-task-ids": { type: "boolean", help: "Do not include task IDs" },
  raw: { type: "boolean", help: "Print lines unmodified, without a prefix" },
} as const;

/** The source: a service, or one of its tasks. */
interface Target {
  readonly selector: LogSelector;
  readonly tasks: ListTasksRequest_Filters;
  readonly slotWidth: number;
  readonly serviceName: string;
  readonly serviceId: string;
  readonly isTerminal: boolean;
}

export const logs = command({
  operands: "SERVICE|TASK",
  min: 1,
  max: 1,
  summary: "Fetch the logs of a service or task.",
  options: flags,
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const options = LogSubscriptionOptions.create({
        follow: values.follow ?? false,
        tail: tailOf(values.tail ?? "all"),
        since: sinceOf(values.since ?? "", shell.now()),
      });
      const target = await targetOf(client, operands[0] as string);
      const raw = values.raw ?? false;
      if (target.isTerminal && !raw) throw new UserError("tty service logs only supported with --raw");
      const format: LineFormat = {
        raw,
        timestamps: values.timestamps ?? false,
        details: values.details ?? false,
        noTrunc: values["no-trunc"] ?? false,
        noTaskIds: values["no-task-ids"] ?? false,
        slotWidth: target.slotWidth,
      };
      const origins = new Origins(client, target, format, values["no-resolve"] ?? false);
      await new Printer(client, shell, origins, format).run(
        SubscribeLogsRequest.create({ selector: target.selector, options }),
      );
    }),
});

/** SwarmKit's encoding: 0 means all, -(n+1) the last n. */
function tailOf(text: string): number {
  if (text === "all") return 0;
  if (!/^\d{1,9}$/.test(text))
    throw new UsageError(`invalid argument "${text}" for "--tail" flag: expected a number of lines or 'all'`);
  return -Number(text) - 1;
}

/** Parses a time, seconds since the epoch, or a duration before now. */
function sinceOf(text: string, nowMs: number): Timestamp | null {
  if (text === "") return null;
  const unix = /^(\d+)(?:\.(\d{1,9}))?$/.exec(text);
  if (unix !== null) {
    return Timestamp.create({ seconds: Number(unix[1]), nanos: Number((unix[2] ?? "").padEnd(9, "0")) });
  }
  if (/^\d{4}-/.test(text)) {
    // A time without a zone is local, as in Docker.
    const isDay = /^\d{4}-\d{2}-\d{2}$/.test(text);
    const ms = Date.parse(isDay ? `${text}T00:00:00` : text);
    if (Number.isNaN(ms))
      throw new UsageError(
        `invalid argument "${text}" for "--since" flag: expected a time such as 2026-01-02T15:04:05Z`,
      );
    const fraction = /\.(\d{1,9})/.exec(text)?.[1];
    const seconds = Math.floor(ms / 1_000);
    return Timestamp.create({ seconds, nanos: Number((fraction ?? "").padEnd(9, "0")) });
  }
  return timestampOf(nowMs - durationMs(parseDuration(text, "since"), 0));
}

async function targetOf(client: ManagerClient, text: string): Promise<Target> {
  let service: Service;
  try {
    service = await findService(client, text);
  } catch (error) {
    if (!(error instanceof NotThereError)) throw error;
    return taskTarget(await taskNamed(client, text));
  }
  const replicas = service.spec?.replicated?.replicas ?? 1;
  return {
    selector: LogSelector.create({ serviceIds: [service.id] }),
    tasks: ListTasksRequest_Filters.create({ serviceIds: [service.id] }),
    slotWidth: String(replicas).length,
    serviceName: serviceName(service),
    serviceId: service.id,
    isTerminal: service.spec?.task?.container?.tty === true,
  };
}

async function taskNamed(client: ManagerClient, text: string): Promise<Task> {
  try {
    return await findTask(client, text);
  } catch (error) {
    if (!(error instanceof NotThereError)) throw error;
    throw new NotThereError(`no such task or service: ${text}`);
  }
}

function taskTarget(task: Task): Target {
  return {
    selector: LogSelector.create({ taskIds: [task.id] }),
    tasks: ListTasksRequest_Filters.create({ idPrefixes: [task.id] }),
    slotWidth: String(task.slot).length,
    serviceName: task.serviceAnnotations?.name ?? task.serviceId,
    serviceId: task.serviceId,
    isTerminal: task.spec?.container?.tty === true,
  };
}

/** Names of the tasks' origins, looked up with a task's first line. */
class Origins {
  readonly #client: ManagerClient;
  readonly #target: Target;
  readonly #format: LineFormat;
  readonly #isById: boolean;
  readonly #texts = new Map<string, string>();
  #nodes: ReadonlyMap<string, string> = new Map();
  #tasks: ReadonlyMap<string, Task> = new Map();

  constructor(client: ManagerClient, target: Target, format: LineFormat, isById: boolean) {
    this.#client = client;
    this.#target = target;
    this.#format = format;
    this.#isById = isById;
  }

  /** Null when it is not cached. */
  known(taskId: string): string | null {
    return this.#format.raw || taskId === noticeTaskId ? "" : (this.#texts.get(taskId) ?? null);
  }

  async lookUp(taskId: string, nodeId: string): Promise<string> {
    if (!this.#tasks.has(taskId)) {
      const tasks = await listTasks(this.#client, this.#target.tasks);
      this.#tasks = new Map(tasks.map((task) => [task.id, task]));
    }
    if (!this.#isById && !this.#nodes.has(nodeId)) {
      const nodes = await listNodes(this.#client);
      const nameOf = nodeNames(nodes);
      this.#nodes = new Map(nodes.map((node) => [node.id, node.spec?.annotations?.name || nameOf(node.id)]));
    }
    const { serviceId, serviceName: name } = this.#target;
    const origin: LineOrigin = {
      serviceName: this.#isById ? serviceId : name,
      nodeName: this.#isById ? nodeId : (this.#nodes.get(nodeId) ?? nodeId),
      slot: this.#tasks.get(taskId)?.slot ?? null,
    };
    const text = originText(taskId, origin, this.#format);
    this.#texts.set(taskId, text);
    return text;
  }
}

/** Prints messages as they arrive, and pauses the manager when output is slower. */
class Printer {
  readonly #client: ManagerClient;
  readonly #shell: Shell;
  readonly #origins: Origins;
  readonly #format: LineFormat;
  readonly #waiting: SubscribeLogsMessage[] = [];
  #end: { readonly error: RpcError | null } | null = null;
  #wake: (() => void) | null = null;

  constructor(client: ManagerClient, shell: Shell, origins: Origins, format: LineFormat) {
    this.#client = client;
    this.#shell = shell;
    this.#origins = origins;
    this.#format = format;
  }

  async run(request: SubscribeLogsRequest): Promise<void> {
    let isPaused = false;
    const stream = this.#client.channel.serverStream(LogsService.methods.SubscribeLogs, request, {
      onMessage: (message) => {
        this.#waiting.push(message);
        if (!isPaused && this.#waiting.length >= waitingMax) {
          isPaused = true;
          stream.pause();
        }
        this.#wake?.();
      },
      onEnd: (error) => {
        this.#end = { error };
        this.#wake?.();
      },
    });
    try {
      for (;;) {
        const message = this.#waiting.shift();
        if (message !== undefined) {
          await this.#print(message.messages);
        } else if (isPaused) {
          isPaused = false;
          stream.resume();
        } else if (this.#end === null) await new Promise<void>((resolve) => (this.#wake = resolve));
        else if (this.#end.error === null) return;
        else throw this.#end.error;
      }
    } finally {
      stream.cancel();
    }
  }

  /** Joins consecutive lines for the same output into one write. */
  async #print(messages: readonly LogMessage[]): Promise<void> {
    let lines: Uint8Array[] = [];
    let to: "out" | "err" = "out";
    const flush = async (): Promise<void> => {
      if (lines.length === 0) return;
      const room = this.#shell.write(Buffer.concat(lines), to);
      lines = [];
      if (room !== null) await room;
    };
    for (const message of messages) {
      const { context, data, stream } = message;
      const taskId = context?.taskId ?? noticeTaskId;
      if (taskId === noticeTaskId) {
        this.#shell.remark(`muster: ${new TextDecoder().decode(data).trimEnd()}`);
        continue;
      }
      const origin = this.#origins.known(taskId) ?? (await this.#origins.lookUp(taskId, context?.nodeId ?? ""));
      if (outputOf(stream) !== to) await flush();
      to = outputOf(stream);
      lines.push(lineText(message, origin, this.#format));
    }
    await flush();
  }
}
