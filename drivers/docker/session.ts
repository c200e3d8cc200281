/** Commands in a container, run by the engine. */
import { constants } from "node:os";
import type { Duplex } from "node:stream";
import type {
  ExecIdentity,
  ExecRequest,
  ExecSession,
  TaskExit,
  TerminalSize,
} from "../../edges/plugin/server/index.ts";
import type { Engine } from "./engine.ts";
import { Frames } from "./frames.ts";

/** Polls for the exit code: the engine closes the stream shortly before it has the code. */
const exitTries = 50;
const exitTryMs = 20;
/** Polls until the command runs. */
const resizeTries = 100;
const resizeTryMs = 50;

interface ExecState {
  readonly Running: boolean;
  readonly ExitCode: number | null;
  /** On the engine's machine; 0 before it runs. */
  readonly Pid: number;
}

/** As in a shell: 128 + n after signal n. */
export function exitOf(exitCode: number, oomKilled = false): TaskExit {
  const number = exitCode - 128;
  const isSignal = Object.values(constants.signals).includes(number as never);
  return { exitCode, signal: isSignal ? number : 0, oomKilled };
}

async function exitCode(engine: Engine, id: string): Promise<TaskExit> {
  for (let count = 1; ; count += 1) {
    const { ExitCode, Running } = await engine.json<ExecState>("GET", `/exec/${id}/json`);
    if (!Running && ExitCode !== null) return exitOf(ExitCode);
    if (count === exitTries) throw new Error("the engine reported no exit code for the command");
    await new Promise((resolve) => setTimeout(resolve, exitTryMs));
  }
}

/** Resolves when all output has been passed on. */
export function relay(
  socket: Duplex,
  { output, onDrain }: Pick<ExecRequest, "output" | "onDrain">,
  isRaw: boolean,
): Promise<void> {
  let isFull = false;
  const frames = new Frames(false, (stream, bytes) => {
    if (!output(stream, bytes)) isFull = true;
  });
  socket.on("data", (bytes: Buffer) => {
    if (!isRaw) frames.push(bytes);
    else isFull = !output("stdout", bytes);
    if (!isFull) return;
    isFull = false;
    socket.pause();
    onDrain(() => socket.resume());
  });
  return new Promise((resolve) => {
    socket.once("end", resolve);
    socket.once("close", resolve);
    socket.on("error", () => resolve());
  });
}

export async function openSession(
  engine: Engine,
  containerId: string,
  request: ExecRequest,
  identity: ExecIdentity | null,
  isLocal: boolean,
): Promise<ExecSession> {
  const { command, terminal } = request;
  const { directory = "", env = [], privileged = false, user = "" } = identity ?? {};
  const { Id: id } = await engine.json<{ readonly Id: string }>("POST", `/containers/${containerId}/exec`, {
    body: {
      AttachStdin: true,
      AttachStdout: true,
      AttachStderr: true,
      Tty: terminal !== null,
      Env: [...(terminal === null ? [] : ["TERM=xterm"]), ...env],
      User: user,
      WorkingDir: directory,
      Privileged: privileged,
      Cmd: command,
    },
  });
  const socket = await engine.upgrade(`/exec/${id}/start`, { Detach: false, Tty: terminal !== null });
  let isOver = false;
  let wanted: TerminalSize | null = null;
  // One resize at a time; of those requested meanwhile only the last. Before the command runs the engine refuses.
  const applySize = async (): Promise<void> => {
    for (let tries = 0; wanted !== null && !isOver && tries < resizeTries; tries += 1) {
      const { rows, columns } = wanted;
      try {
        await engine.json("POST", `/exec/${id}/resize`, { query: { h: rows, w: columns } });
        if (wanted.rows === rows && wanted.columns === columns) wanted = null;
        tries = 0;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, resizeTryMs));
      }
    }
    wanted = null;
  };
  const resize = (size: TerminalSize): void => {
    const isUnderWay = wanted !== null;
    wanted = size;
    if (!isUnderWay) void applySize();
  };
  if (terminal !== null) resize(terminal);
  const exited = relay(socket, request, terminal !== null)
    .then(() => exitCode(engine, id))
    .catch((error: Error): TaskExit => ({ exitCode: -2, signal: 0, oomKilled: false, err: error.message }))
    .finally(() => (isOver = true));
  return {
    exited,
    write: (bytes) => void socket.write(bytes),
    closeInput: () => void socket.end(),
    resize,
    kill: () => {
      // The engine's API cannot kill a command; on this machine the driver can.
      if (isLocal) void killProcess(engine, id);
      socket.destroy();
    },
  };
}

async function killProcess(engine: Engine, id: string): Promise<void> {
  try {
    const { Pid, Running } = await engine.json<ExecState>("GET", `/exec/${id}/json`);
    if (Running && Pid > 1) process.kill(Pid, "SIGKILL");
  } catch {
    // It has exited.
  }
}
