/**
 * `/containers/{id}/exec` and `/exec/{id}`: commands in the containers and processes of tasks, on any node that runs Muster's agent.
 *
 * EX3: a command ends with its connection; a detached one, with its task.
 * EX4: a detached command that does not start is an error of the request: it has ended within `startMsMax`, with the status of a shell that
 *      could not start it.
 */
import {
  TaskCallRequest,
  TaskExec,
  TaskExecAs,
  TaskExecIdentity,
  TaskTerminalSize,
} from "../../../proto/gen/messages.ts";
import { RpcError } from "../../../runtime/ports/rpc.ts";
import { isOlder } from "../api-version.ts";
import { execBody, execStartBody } from "../bodies/exec.ts";
import { beginStream, type ClientStream } from "../client-stream.ts";
import type { Exec } from "../execs.ts";
import { badRequest, Failure } from "../failure.ts";
import { streamType } from "../frames.ts";
import { bodyOf, demandJson, ok, optionalBodyOf, type DockerRequest, type Handler } from "../request.ts";
import type { Json } from "../shape.ts";
import { callTask, exitStatus } from "../task-call.ts";
import { forwardInput, inOrder, TaskOutput } from "../task-stream.ts";
import { findContainer, runningContainer } from "./containers.ts";

/** The exit status of a command that could not be started, as in a shell, and of one that does not exist. */
const notStarted = 126;
const notFound = 127;
/** A command that has not ended after this time has started, in milliseconds: drivers do not report the start. */
const startMsMax = 1_000;
/** Bytes kept of a detached command's output: they say why it did not start. */
const reasonBytesMax = 4_096;

/** Null if the command does not differ from its task. */
function identityOf(body: Json): TaskExecIdentity | null {
  const identity = TaskExecIdentity.create({
    user: (body["User"] as string | null | undefined) ?? "",
    env: (body["Env"] as readonly string[] | null | undefined) ?? [],
    directory: (body["WorkingDir"] as string | null | undefined) ?? "",
    privileged: body["Privileged"] === true,
  });
  const { directory, env, privileged, user } = identity;
  return user === "" && env.length === 0 && directory === "" && !privileged ? null : identity;
}

/** The call to a task that runs the command. */
function requestOf({ command, hasTerminal, identity, taskId }: Exec, size: TaskTerminalSize | null): TaskCallRequest {
  const exec = TaskExec.create({ command, tty: hasTerminal, size });
  if (identity === null) return TaskCallRequest.create({ taskId, exec });
  return TaskCallRequest.create({ taskId, execAs: TaskExecAs.create({ exec, identity }) });
}

export const createExec: Handler = async (request) => {
  demandJson(request);
  // Not only of who starts it: a new one may displace those of others. EX2
  request.calls.demand("operator");
  const body = await bodyOf(request, execBody);
  const { command, tty } = execBody.read(body);
  if (command.length === 0) throw badRequest("No exec command specified");
  const { id, task } = runningContainer(await findContainer(request, request.name));
  const exec = request.backend.execs.create({
    containerId: id,
    taskId: task.id,
    command,
    identity: identityOf(body),
    hasTerminal: tty,
    attaches: {
      stdin: body["AttachStdin"] === true,
      stdout: body["AttachStdout"] === true,
      stderr: body["AttachStderr"] === true,
    },
    detachKeys: (body["DetachKeys"] as string | null | undefined) ?? "",
  });
  return { status: 201, body: { Id: exec.id } };
};

export const inspectExec: Handler = ({ backend, name }) => {
  const { attaches, command, containerId, detachKeys, hasTerminal, id, identity, state } = backend.execs.find(name);
  const [entrypoint = "", ...words] = command;
  return ok({
    ID: id,
    Running: state.kind === "running",
    ExitCode: state.kind === "ended" ? state.exitCode : null,
    ProcessConfig: {
      tty: hasTerminal,
      entrypoint,
      arguments: words,
      privileged: identity?.privileged ?? false,
      ...((identity?.user ?? "") === "" ? {} : { user: identity?.user }),
    },
    OpenStdin: attaches.stdin,
    OpenStderr: attaches.stderr,
    OpenStdout: attaches.stdout,
    CanRemove: state.kind === "ended",
    ContainerID: containerId,
    DetachKeys: Buffer.from(detachKeys).toString("base64"),
    Pid: 0,
  });
};

/** Throws Failure. */
export function sizeOf({ query, version }: Pick<DockerRequest, "query" | "version">): TaskTerminalSize {
  const [height, width] = (["height", "width"] as const).map((name) => {
    const text = query.get(name.charAt(0)) ?? "";
    if (/^\d{1,9}$/.test(text)) return Number(text);
    const what = isOlder(version, "1.48") ? "strconv.Atoi: parsing" : `invalid resize ${name}`;
    throw badRequest(`${what} ${JSON.stringify(text)}: invalid syntax`);
  });
  return TaskTerminalSize.create({ height: height ?? 0, width: width ?? 0 });
}

export const resizeExec: Handler = async (request) => {
  const { backend, name } = request;
  const size = sizeOf(request);
  const { id, state } = backend.execs.find(name);
  if (state.kind !== "running" || state.send === null) throw new Failure(409, `Exec command ${id} is not running`);
  await state.send({ size });
  return ok();
};

/** The size in the body, `[height, width]`; null if there is none. */
function consoleSize(body: Json): TaskTerminalSize | null {
  const [height = 0, width = 0] = (body["ConsoleSize"] as readonly number[] | null | undefined) ?? [];
  return height > 0 && width > 0 ? TaskTerminalSize.create({ height, width }) : null;
}

export const startExec: Handler = async (request) => {
  demandJson(request);
  const body = await optionalBodyOf(request, execStartBody);
  const { backend, calls, name, signal, version } = request;
  const exec = backend.execs.find(name);
  const isDetached = body["Detach"] === true;
  const unread = new Unread();
  const out = new TaskOutput(
    isDetached ? { isRaw: true, stdout: true, stderr: true } : { isRaw: exec.hasTerminal, ...exec.attaches },
  );
  backend.execs.start(exec);
  let begun: Awaited<ReturnType<typeof callTask>>;
  try {
    begun = await callTask(
      calls,
      requestOf(exec, consoleSize(body)),
      out,
      // EX3
      isDetached ? new AbortController().signal : signal,
    );
  } catch (error) {
    backend.execs.end(exec, notStarted);
    if (isDetached || !(error instanceof RpcError)) throw error;
    // In the stream, like an engine: clients do not show the body of a refused upgrade.
    const refused = beginStream(request.upgrade, request.response, streamType(version, exec.hasTerminal));
    out.begin(refused);
    out.failure(error.message);
    refused.end();
    return null;
  }
  const send = inOrder(begun.send);
  exec.state = { kind: "running", send };
  const ended = begun.ended.then(
    (end) => backend.execs.end(exec, end === null ? notStarted : exitStatus(end)),
    (error: unknown) => {
      backend.execs.end(exec, notStarted);
      if (!(error instanceof RpcError)) throw error;
      out.failure(error.message);
    },
  );
  if (isDetached) {
    out.begin(unread);
    void send({ close: true }).catch(() => undefined);
    ended.catch((error: unknown) => backend.log.error({ err: error }, "a detached command failed"));
    await Promise.race([
      ended.catch(() => undefined),
      new Promise((resolve) => backend.clock.setTimeout(() => resolve(undefined), startMsMax)),
    ]);
    demandStart(exec, unread.text);
    return ok();
  }
  const stream = beginStream(request.upgrade, request.response, streamType(version, exec.hasTerminal));
  out.begin(stream);
  if (stream.input !== null && exec.attaches.stdin) forwardInput(stream.input, send);
  else {
    // Otherwise the end of the connection would not be noticed.
    stream.input?.resume();
    void send({ close: true }).catch(() => undefined);
  }
  await ended.finally(() => stream.end());
  return null;
};

/** The beginning of a detached command's output. */
class Unread implements ClientStream {
  readonly input = null;
  text = "";

  write(data: Uint8Array): void {
    if (this.text.length < reasonBytesMax) this.text += Buffer.from(data).toString();
  }

  waitingBytes(): number {
    return 0;
  }

  end(): void {
    // Nobody waits for it.
  }
}

/** Throws Failure. EX4 */
function demandStart({ state }: Exec, reason: string): void {
  if (state.kind !== "ended" || (state.exitCode !== notStarted && state.exitCode !== notFound)) return;
  const isRefused = reason.startsWith("OCI runtime");
  throw new Failure(isRefused ? 400 : 500, reason.trim() || "the command could not be started");
}
