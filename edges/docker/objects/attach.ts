/** `/containers/{id}/attach`, `/wait` and `/kill`: following the main process of a task, and signals to it. */
import {
  LogSelector,
  LogStream,
  TaskAttach,
  TaskCallRequest,
  TaskSignal,
  type Task,
} from "../../../proto/gen/messages.ts";
import { badRequest, Failure } from "../failure.ts";
import { streamType } from "../frames.ts";
import { isSet } from "../go-text.ts";
import { RpcError } from "../../../runtime/ports/rpc.ts";
import { hasOldWords, ok, type DockerRequest, type Handler } from "../request.ts";
import { beginStream, type ClientStream } from "../client-stream.ts";
import { callTask } from "../task-call.ts";
import { forwardInput, inOrder, TaskOutput } from "../task-stream.ts";
import { isOver, untilMet } from "../until-met.ts";
import { findContainer, runningContainer } from "./containers.ts";
import { sizeOf } from "./execs.ts";
import { streamLogs, streamsOf } from "./logs.ts";
import { jsonText } from "../../../lib/template/template.ts";

/** Lines before the request, in SwarmKit's encoding: all of them, or none. */
const [allLines, noLines] = [0, -1];

/** After a task's end, its output has arrived when nothing more has come for this time, in milliseconds. */
const quietMs = 1_000;

export const attach: Handler = async (request) => {
  const { backend, calls, query, response, signal, upgrade, version } = request;
  const { id, task } = runningContainer(await findContainer(request, request.name));
  const detachKeys = query.get("detachKeys") ?? "";
  if (!areDetachKeys(detachKeys)) throw badRequest(`Invalid detach keys (${detachKeys}) provided`);
  if (isSet(query.get("stdin")) && isSet(query.get("stream")) && task.spec?.container?.openStdin === true)
    return attachInput(request, id, task);
  const [logs, stream] = [isSet(query.get("logs")), isSet(query.get("stream"))];
  const streams = streamsOf(query);
  const isRaw = task.spec?.container?.tty === true;
  const begin = (): ClientStream => {
    const out = beginStream(upgrade, response, streamType(version, isRaw));
    // Input goes nowhere; its end must be noticed.
    out.input?.resume();
    return out;
  };
  if (streams.length === 0 || !(logs || stream)) {
    begin().end();
    return null;
  }
  const over = new AbortController();
  const leave = (): void => over.abort();
  signal.addEventListener("abort", leave, { once: true });
  // Output that is kept can be followed for ever: an attached client leaves with the task.
  let timer: NodeJS.Timeout | undefined;
  const rest = (): void => {
    clearTimeout(timer);
    if (isOver(backend.store.get("task", task.id))) timer = setTimeout(leave, quietMs);
  };
  const watching = backend.store.watch(({ changes }) => {
    if (changes.some(({ object }) => object.id === task.id)) rest();
  });
  try {
    return await streamLogs(
      { calls, query: new URLSearchParams(), signal: over.signal },
      begin,
      {
        selector: LogSelector.create({ taskIds: [task.id] }),
        isRaw,
        streams,
        follow: stream,
        tail: logs ? allLines : noLines,
        since: null,
      },
      rest,
    );
  } finally {
    clearTimeout(timer);
    watching.unsubscribe();
    signal.removeEventListener("abort", leave);
  }
};

/** One character, or `ctrl-` and one, for each key; commas between them. Empty: the default. */
function areDetachKeys(text: string): boolean {
  return text === "" || text.split(",").every((key) => key.length === 1 || /^ctrl-[a-z@[\\\]^_]$/i.test(key));
}

/** With the task's own input, its output comes on the same way: an answer to what is typed must not wait for the logs. */
async function attachInput(request: DockerRequest, containerId: string, task: Task): Promise<null> {
  const { backend, calls, query, response, signal, upgrade, version } = request;
  const isRaw = task.spec?.container?.tty === true;
  const streams = streamsOf(query);
  const out = new TaskOutput({
    isRaw,
    stdout: streams.includes(LogStream.LOG_STREAM_STDOUT),
    stderr: streams.includes(LogStream.LOG_STREAM_STDERR),
  });
  const attach = TaskAttach.create({ detachKeys: query.get("detachKeys") ?? "", logs: isSet(query.get("logs")) });
  const begun = await callTask(calls, TaskCallRequest.create({ taskId: task.id, attach }), out, signal);
  const send = inOrder(begun.send);
  const stream = beginStream(upgrade, response, streamType(version, isRaw));
  out.begin(stream);
  const leave = backend.attachments.add(containerId, send);
  if (stream.input !== null) forwardInput(stream.input, send);
  try {
    await begun.ended;
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    out.failure(error.message);
  } finally {
    leave();
    stream.end();
  }
  return null;
}

/** The size of the terminal of a task, set through the clients of this manager that are attached to it. */
export const resize: Handler = async (request) => {
  const size = sizeOf(request);
  const { id } = runningContainer(await findContainer(request, request.name));
  const send = request.backend.attachments.of(id);
  if (send === null)
    throw new Failure(409, `no client of this manager is attached to the input of container ${id}: attach to it first`);
  await send({ size });
  return ok();
};

const conditions = new Set(["", "not-running", "next-exit", "removed"]);

/** Answers when the task has ended: a task never runs twice. */
export const wait: Handler = async (request) => {
  const { backend, query, response, signal } = request;
  const { store } = backend;
  const condition = query.get("condition") ?? "";
  if (!conditions.has(condition)) throw new Failure(400, `invalid condition: ${JSON.stringify(condition)}`);
  let { task } = await findContainer(request, request.name);
  response.writeHead(200, { "content-type": "application/json" });
  response.flushHeaders();
  const isMet = (): boolean => {
    const found = store.get("task", task.id);
    task = found ?? task;
    return condition === "removed" ? found === undefined : isOver(found);
  };
  await untilMet(backend, signal, isMet);
  response.end(`${jsonText({ StatusCode: task.status?.container?.exitCode ?? 0 })}\n`);
  return null;
};

export const kill: Handler = async (request) => {
  const { calls, query, signal } = request;
  const given = (query.get("signal") || "SIGKILL").toUpperCase();
  const { id, state, task } = await findContainer(request, request.name).catch((error: unknown) => {
    throw error instanceof Failure
      ? new Failure(
          error.status,
          `${hasOldWords(request) ? "Cannot" : "cannot"} kill container: ${request.name}: ${error.message}`,
        )
      : error;
  });
  if (state !== "running")
    throw new Failure(409, `Cannot kill container: ${request.name}: Container ${id} is not running`);
  await signalTask({ calls, signal }, task.id, given.startsWith("SIG") || /^\d+$/.test(given) ? given : `SIG${given}`);
  return { status: 204 };
};

async function signalTask(
  { calls, signal }: Pick<DockerRequest, "calls" | "signal">,
  taskId: string,
  name: string,
): Promise<void> {
  const { ended } = await callTask(
    calls,
    TaskCallRequest.create({ taskId, signal: TaskSignal.create({ name }) }),
    { onAnswer: () => undefined, waitingBytes: () => 0 },
    signal,
  );
  await ended;
}
