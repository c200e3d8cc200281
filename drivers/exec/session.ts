/**
 * Commands in a task: with pipes, or with a terminal, which `script` of util-linux opens and `stty` resizes (docs/adr:
 * terminals without a native module).
 *
 * S1: a killed session leaves no process of its group.
 */
import { spawn, type ChildProcess } from "node:child_process";
import type { ExecRequest, ExecSession, TaskExit, TerminalSize } from "../../edges/plugin/server/index.ts";
import { signal } from "./process.ts";
import { commandArguments, shell, signalNumberOf, type FileWrite } from "./run-file.ts";
import type { Surroundings } from "./surroundings.ts";
import type { Tools } from "../../linux/system-tools.ts";
import { constants } from "node:os";

/**
 * Checks without new output before a finished command's output counts as complete, if a process that it left behind holds it
 * open. Counted, not timed: the second of two checks only comes after pending output was read.
 */
const quietLooks = 3;
const quietLookMs = 100;
/** The default for TERM. */
const terminalType = "xterm";

/** Quotes a word for a shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function exitOf(code: number | null, name: NodeJS.Signals | null): TaskExit {
  if (name !== null) {
    const number = constants.signals[name];
    return { exitCode: 128 + number, signal: number, oomKilled: false };
  }
  const exitCode = code ?? 0;
  return { exitCode, signal: signalNumberOf(exitCode), oomKilled: false };
}

/** Passes on output at the host's pace; resolves when the command has exited and all output was passed on. */
function relay(child: ChildProcess, { output, onDrain }: ExecRequest): Promise<TaskExit> {
  let pausedCount = 0;
  let quiet = 0;
  for (const stream of ["stdout", "stderr"] as const) {
    const pipe = child[stream];
    pipe?.on("error", () => {});
    pipe?.on("data", (bytes: Buffer) => {
      quiet = 0;
      if (output(stream, bytes)) return;
      pipe.pause();
      pausedCount += 1;
      onDrain(() => {
        pausedCount -= 1;
        pipe.resume();
      });
    });
  }
  return new Promise((resolve) => {
    child.once("error", (error) => resolve({ exitCode: -2, signal: 0, oomKilled: false, err: error.message }));
    child.once("close", (code, name) => resolve(exitOf(code, name)));
    child.once("exit", (code, name) => {
      quiet = 0;
      const look = setInterval(() => {
        if (pausedCount > 0 || (quiet += 1) <= quietLooks) return;
        child.stdout?.destroy();
        child.stderr?.destroy();
        resolve(exitOf(code, name));
      }, quietLookMs);
      child.once("close", () => clearInterval(look));
    });
  });
}

interface Started {
  readonly child: ChildProcess;
  readonly exited: Promise<TaskExit>;
}

function start(args: readonly string[], where: Surroundings, request: ExecRequest, hasTerminal: boolean): Started {
  const child = spawn(shell, args, {
    cwd: where.directory,
    env: where.env as NodeJS.ProcessEnv,
    detached: true,
    stdio: ["pipe", "pipe", "pipe", ...(hasTerminal ? (["pipe"] as const) : [])],
  });
  child.stdin?.on("error", () => {}); // the command does not read its input
  return { child, exited: relay(child, request) };
}

function killGroup({ pid }: ChildProcess): void {
  if (pid !== undefined) signal(-pid, "SIGKILL");
}

/** `leader`: the leader of the command's group, or its parent. */
function kill(leader: number, { isJoined = false }: Surroundings): void {
  if (isJoined) signal(leader, "SIGTERM");
  else signal(-leader, "SIGKILL");
}

function withPipes(writes: readonly FileWrite[], where: Surroundings, request: ExecRequest): ExecSession {
  const args = commandArguments(writes, [...where.prefix, ...request.command]);
  const { child, exited } = start(args, where, request, false);
  return {
    exited,
    write: (bytes) => void child.stdin?.write(bytes),
    closeInput: () => void child.stdin?.end(),
    resize: () => {},
    kill: () => {
      if (child.pid !== undefined) kill(child.pid, where); // S1
    },
  };
}

/**
 * Inside `script`, a shell sets the terminal's initial size, then reports the terminal and its own pid on descriptor 3, and
 * becomes the command. In this order: nobody resizes a terminal before its name is known, so the initial size never
 * overwrites a later one.
 */
function withTerminal(
  writes: readonly FileWrite[],
  where: Surroundings,
  request: ExecRequest,
  size: TerminalSize,
  tools: Tools,
): ExecSession {
  const { script, stty } = tools;
  if (script === null || stty === null)
    throw new Error("cannot open a terminal: install script (util-linux) and stty (coreutils) on this node");
  const ownShell = where.env["SHELL"];
  const inner = [
    `${quoted(stty)} rows ${size.rows} cols ${size.columns}`,
    `printf '%s %s\\n' "$$" "$(tty)" >&3`,
    "exec 3>&-",
    ownShell === undefined ? "unset SHELL" : `SHELL=${quoted(ownShell)}`,
    `exec ${[...where.prefix, ...request.command].map(quoted).join(" ")}`,
  ].join("; ");
  const args = commandArguments(writes, [script, "-q", "-e", "-E", "always", "-c", inner, "/dev/null"]);
  // `script` runs its command with the shell in SHELL.
  const env = { TERM: terminalType, ...where.env, SHELL: shell };
  const { child, exited } = start(args, { ...where, env }, request, true);

  let terminal = "";
  let leader = 0;
  let wanted: TerminalSize | null = null;
  let isOver = false;
  let isResizing = false;
  // One resize at a time; of those requested meanwhile only the last.
  const apply = (): void => {
    if (wanted === null || terminal === "" || isOver || isResizing) return;
    const { rows, columns } = wanted;
    wanted = null;
    isResizing = true;
    const resizing = spawn(stty, ["-F", terminal, "rows", String(rows), "cols", String(columns)], { stdio: "ignore" });
    const settled = (): void => {
      isResizing = false;
      apply();
    };
    resizing.once("error", settled); // out of processes: the size is unchanged
    resizing.once("exit", settled);
  };
  const said = child.stdio[3];
  let text = "";
  said?.on("error", () => {});
  said?.on("data", (bytes: Buffer) => {
    text += bytes.toString("latin1");
    const [, pid, path] = /^(\d+) (\/dev\/pts\/\d+)\n/.exec(text) ?? [];
    if (pid === undefined || path === undefined || terminal !== "") return;
    [leader, terminal] = [Number(pid), path];
    apply();
  });
  void exited.then(() => {
    isOver = true;
    said?.destroy();
  });
  return {
    exited,
    write: (bytes) => void child.stdin?.write(bytes),
    closeInput: () => void child.stdin?.end(),
    resize: (next) => {
      wanted = next;
      apply();
    },
    kill: () => {
      // S1: the command leads a separate session. When it has exited, so have the processes around it.
      if (leader > 0 && !isOver) kill(leader, where);
      if (leader === 0 || where.isJoined !== true) killGroup(child);
    },
  };
}

/** Throws if the machine cannot open it. */
export function openSession(
  writes: readonly FileWrite[],
  where: Surroundings,
  request: ExecRequest,
  tools: Tools,
): ExecSession {
  if (request.command.length === 0) throw new Error("the command is empty");
  if (request.command.some((argument) => argument.includes("\0"))) throw new Error("an argument contains a null byte");
  const { terminal } = request;
  return terminal === null ? withPipes(writes, where, request) : withTerminal(writes, where, request, terminal, tools);
}
