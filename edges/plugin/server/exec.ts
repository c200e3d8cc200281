/** Runs commands in a task: one call waits for the command and the end of its output, the other streams both ways. */
import {
  ExecTaskResponse,
  ExecTaskStreamingIOOperation,
  ExecTaskStreamingResponse,
  ExitResult,
  type ExecTaskRequest,
  type ExecTaskStreamingRequest,
  type TaskAttachRequest,
  type TaskCommandRequest,
} from "../../../proto/gen/nomad.ts";
import { RpcError, Status, type CallContext, type Sink, type CallSignal } from "../../../runtime/ports/rpc.ts";
import type { ExecRequest, ExecSession, RunningTask, TaskExit, TerminalSize } from "./driver.ts";

/** Bytes kept of each output stream, from its end: as many as Nomad's own drivers keep. */
const tailBytes = 4_096;
/** Unread bytes above which a session must wait for its host. */
const unreadBytesMax = 256 * 1024;
/** Polling interval for the host of a waiting session, in milliseconds. */
const drainPollMs = 10;

const unsupported = (): RpcError => new RpcError(Status.UNKNOWN, "driver does not support exec");

export function exitResult({ exitCode, signal, oomKilled }: TaskExit): ExitResult {
  return ExitResult.create({ exitCode, signal, oomKilled });
}

/** The last bytes of a stream. */
class Tail {
  #bytes = Buffer.alloc(0);

  push(more: Uint8Array): void {
    this.#bytes = Buffer.concat([this.#bytes, more]).subarray(-tailBytes);
  }

  take(): Uint8Array {
    return Uint8Array.from(this.#bytes);
  }
}

/** Runs a command and waits for it. On timeout the command is killed and the call fails. */
export async function execTask(
  task: RunningTask,
  request: ExecTaskRequest,
  timeoutMs: number,
  signal: CallSignal,
): Promise<ExecTaskResponse> {
  if (task.exec === undefined) throw unsupported();
  const tails = { stdout: new Tail(), stderr: new Tail() };
  const session = await task.exec({
    command: request.command,
    terminal: null,
    output: (stream, bytes) => {
      tails[stream].push(bytes);
      return true;
    },
    onDrain: () => {},
  });
  session.closeInput();
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    session.kill();
  }, timeoutMs);
  const kill = (): void => session.kill();
  signal.addEventListener("abort", kill);
  try {
    const exit = await session.exited;
    if (isLate) throw new RpcError(Status.DEADLINE_EXCEEDED, `the command did not exit within ${timeoutMs} ms`);
    return ExecTaskResponse.create({
      stdout: tails.stdout.take(),
      stderr: tails.stderr.take(),
      result: exitResult(exit),
    });
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", kill);
  }
}

function sizeOf(size: { readonly height: number; readonly width: number }): TerminalSize {
  return { rows: size.height, columns: size.width };
}

const close = ExecTaskStreamingIOOperation.create({ close: true });

type Exec = (request: ExecRequest) => ExecSession | Promise<ExecSession>;

/** The host's view of a session: output as it arrives, each stream's close once, then the result. */
function openSession(
  exec: Exec,
  command: readonly string[],
  terminal: TerminalSize | null,
  sink: Sink<ExecTaskStreamingResponse>,
): ExecSession | Promise<ExecSession> {
  return exec({
    command,
    terminal,
    output: (stream, bytes) => {
      const data = ExecTaskStreamingIOOperation.create({ data: bytes });
      sink.write(ExecTaskStreamingResponse.create(stream === "stdout" ? { stdout: data } : { stderr: data }));
      return sink.bufferedBytes() < unreadBytesMax;
    },
    onDrain: (listener) => {
      const poll = setInterval(() => {
        if (sink.bufferedBytes() > unreadBytesMax / 2) return;
        clearInterval(poll);
        listener();
      }, drainPollMs);
      poll.unref();
    },
  });
}

export function execTaskStreaming(
  find: (taskId: string) => RunningTask,
  requests: AsyncIterable<ExecTaskStreamingRequest>,
  sink: Sink<ExecTaskStreamingResponse>,
  call: CallContext,
): Promise<void> {
  const execOf = (task: RunningTask): Exec => {
    if (task.exec === undefined) throw unsupported();
    return (request) => task.exec?.(request) as ExecSession;
  };
  return stream((taskId) => execOf(find(taskId)), requests, sink, call);
}

/** A command that differs from its task. */
export async function execTaskAs(
  find: (taskId: string) => RunningTask,
  requests: AsyncIterable<TaskCommandRequest>,
  sink: Sink<ExecTaskStreamingResponse>,
  call: CallContext,
): Promise<void> {
  const messages = requests[Symbol.asyncIterator]();
  const first = await messages.next();
  const identity = first.done === true ? null : first.value.identity;
  if (identity === null) throw new RpcError(Status.UNKNOWN, "the first message must have an identity");
  const execOf = (task: RunningTask): Exec => {
    if (task.execAs === undefined) throw new RpcError(Status.UNIMPLEMENTED, "this driver's commands equal their task");
    return (request) => task.execAs?.(request, identity) as ExecSession;
  };
  await stream((taskId) => execOf(find(taskId)), inner(first, messages), sink, call);
}

/** The input and output of the task itself. */
export async function attachTask(
  find: (taskId: string) => RunningTask,
  requests: AsyncIterable<TaskAttachRequest>,
  sink: Sink<ExecTaskStreamingResponse>,
  call: CallContext,
): Promise<void> {
  const messages = requests[Symbol.asyncIterator]();
  const first = await messages.next();
  const attachment = first.done === true ? null : first.value.attachment;
  if (attachment === null) throw new RpcError(Status.UNKNOWN, "the first message must have an attachment");
  const attachOf = (task: RunningTask): Exec => {
    if (task.attach === undefined)
      throw new RpcError(Status.UNIMPLEMENTED, "this driver cannot reach the input of a task");
    return (request) => task.attach?.(request, attachment) as ExecSession;
  };
  await stream((taskId) => attachOf(find(taskId)), inner(first, messages), sink, call);
}

/** The requests within a stream whose first message has more. */
async function* inner<Message extends { readonly request: ExecTaskStreamingRequest | null }>(
  first: IteratorResult<Message>,
  messages: AsyncIterator<Message>,
): AsyncGenerator<ExecTaskStreamingRequest> {
  for (let next = first; next.done !== true; next = await messages.next())
    if (next.value.request !== null) yield next.value.request;
}

async function stream(
  find: (taskId: string) => Exec,
  requests: AsyncIterable<ExecTaskStreamingRequest>,
  sink: Sink<ExecTaskStreamingResponse>,
  call: CallContext,
): Promise<void> {
  const messages = requests[Symbol.asyncIterator]();
  const first = await messages.next();
  const setup = first.done === true ? null : first.value.setup;
  if (setup === null) throw new RpcError(Status.UNKNOWN, "first message should always be setup");
  const exec = find(setup.taskId);
  const firstSize = first.done === true ? null : first.value.ttySize;
  const terminal = setup.tty ? sizeOf(firstSize ?? { height: 24, width: 80 }) : null;
  const session = await openSession(exec, setup.command, terminal, sink);
  if (call.signal.aborted) session.kill();
  call.signal.addEventListener("abort", () => session.kill());
  // Not awaited: Nomad keeps its half open until it has our result.
  void forward(messages, session, firstSize);
  const exit = await session.exited;
  sink.write(ExecTaskStreamingResponse.create({ stdout: close }));
  if (!setup.tty) sink.write(ExecTaskStreamingResponse.create({ stderr: close }));
  sink.write(ExecTaskStreamingResponse.create({ exited: true, result: exitResult(exit) }));
}

/** `size`: the terminal's initial size from the host, or null. */
async function forward(
  messages: AsyncIterator<ExecTaskStreamingRequest>,
  session: ExecSession,
  size: ExecTaskStreamingRequest["ttySize"],
): Promise<void> {
  let { height, width } = size ?? { height: 0, width: 0 };
  try {
    for (;;) {
      const next = await messages.next();
      if (next.done === true) break;
      const { stdin, ttySize } = next.value;
      if (ttySize !== null && (ttySize.height !== height || ttySize.width !== width)) {
        ({ height, width } = ttySize);
        session.resize(sizeOf(ttySize));
      }
      if (stdin !== null && stdin.data.length > 0) session.write(stdin.data);
      if (stdin?.close === true) session.closeInput();
    }
    session.closeInput();
  } catch {
    // The call was canceled, which kills the session.
  }
}
