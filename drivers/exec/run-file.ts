/**
 * The shell between this driver and a task's command, and the file to which it writes events. The shell outlives the driver's
 * process, so a later one finds the task, and its exit code if it has exited.
 *
 * The shell's descriptors: 0 nothing, 1 and 2 the task's output, 3 the run file, 4 a pipe to the driver, 5 and 6 the output
 * FIFOs opened for reading: while the task lives, they have a reader, so a host that dies does not kill it by SIGPIPE, and the
 * next host continues to read.
 */
import { constants } from "node:os";
import { parseStat, type ProcessName } from "./process.ts";

export const shell = "/bin/sh";

/** Pairs of a value and the file to write it to, up to `--`. */
const prepare = `while [ "$1" != -- ]; do printf '%s' "$1" >"$2" || exit 125; shift 2; done; shift`;

/**
 * The shell itself runs as the driver's user outside the task's cgroup, so that neither the task nor an OOM kill ends it before
 * it has written the command's exit code. The traps protect it from signals that a command sends to its own group; the
 * subshell has the default dispositions again, and so has the command. The subshell's own trap is for a driver that was killed
 * during a start and no longer reads the pipe.
 */
const script = (begin: string): string => `trap : 1 2 3 10 12 13 14 15 24 25 26 27 29 30
read -r stat </proc/$$/stat
read -r boot </proc/sys/kernel/random/boot_id
printf 'leader %s\\nboot %s\\n' "$stat" "$boot" >&3
(
${prepare}
${begin}
)
printf 'exit %s\\n' "$?" >&3`;

const plain = `read -r stat </proc/self/stat
printf 'main %s\\n' "$stat" >&3
trap : 13
printf 'main %s\\n' "$stat" >&4 2>/dev/null
exec "$@" 3>&- 4>&- 5>&- 6>&-`;

/** The programs before the command run in another process, or fail: the last one writes the same lines (sealing.ts). */
const sealed = `exec "$@" 5>&- 6>&-`;

export interface FileWrite {
  readonly value: string;
  readonly path: string;
}

function preparations(writes: readonly FileWrite[]): readonly string[] {
  return [...writes.flatMap(({ value, path }) => [value, path]), "--"];
}

/** Arguments for `shell` that run a task's command, after its process has made the writes. */
export function taskArguments(
  writes: readonly FileWrite[],
  command: readonly string[],
  isSealed = false,
): readonly string[] {
  return ["-c", script(isSealed ? sealed : plain), "sh", ...preparations(writes), ...command];
}

/** The same for a command run in a task, which need not be recovered. */
export function commandArguments(writes: readonly FileWrite[], command: readonly string[]): readonly string[] {
  return ["-c", `${prepare}; exec "$@"`, "sh", ...preparations(writes), ...command];
}

/** Incomplete lines are ignored. */
export interface RunFacts {
  readonly leader: ProcessName | null;
  /** The command's process. */
  readonly main: ProcessName | null;
  /** As in a shell; null while the command runs, and permanently if the shell was killed. */
  readonly exitCode: number | null;
}

export function parseRunFacts(text: string): RunFacts {
  const lines = text.split("\n").slice(0, -1);
  const after = (key: string) => lines.find((line) => line.startsWith(`${key} `))?.slice(key.length + 1);
  const boot = after("boot");
  const process = (key: string): ProcessName | null => {
    const facts = parseStat(after(key) ?? "");
    return facts === null || boot === undefined ? null : { pid: facts.pid, startTime: facts.startTime, bootId: boot };
  };
  const exit = after("exit");
  return { leader: process("leader"), main: process("main"), exitCode: exit === undefined ? null : Number(exit) };
}

/** The number of the signal that killed a command, from its exit code; 0 if it exited by itself. */
export function signalNumberOf(exitCode: number): number {
  const number = exitCode - 128;
  return Object.values(constants.signals).includes(number as never) ? number : 0;
}

/** Accepts `SIGTERM`, `TERM` and `15`. Throws for an unknown signal. */
export function signalNamed(text: string): NodeJS.Signals {
  const wanted = text.toUpperCase();
  for (const [name, number] of Object.entries(constants.signals)) {
    if (name === wanted || name === `SIG${wanted}` || String(number) === wanted) return name as NodeJS.Signals;
  }
  throw new Error(`unknown signal "${text}"`);
}
