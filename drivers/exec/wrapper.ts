/**
 * The shell that stands between the agent and a task's command. It leads the task's session, so it is the one process
 * that a later life of the agent has to recognise, and it writes down how the command ended, so that the exit code
 * outlives the agent.
 *
 * File descriptor 3 is the run file. It gets the shell's own line of /proc, the machine's boot, and at last the exit
 * code: each a whole line, written by one write.
 */
import { constants } from "node:os";
import type { ProcessName } from "./process.ts";
import { parseStat } from "./process.ts";

/**
 * The trap keeps the shell alive when a stop signal goes to the whole group; a command run in the foreground starts with
 * the default dispositions all the same (in the background it would ignore SIGINT and SIGQUIT). The numbers are those of
 * the signals whose default is to end a process and that somebody could choose for stopping one.
 */
const script = `trap : 1 2 3 10 12 13 14 15 24 25 26 27 29 30
read -r stat </proc/$$/stat
read -r boot </proc/sys/kernel/random/boot_id
printf 'stat %s\\nboot %s\\n' "$stat" "$boot" >&3
"$@" 3>&-
printf 'exit %s\\n' "$?" >&3`;

export const shell = "/bin/sh";

/** Arguments for `shell`. */
export function wrapperArguments(command: string, args: readonly string[]): readonly string[] {
  return ["-c", script, "sh", command, ...args];
}

/** What a run file says. Lines that are not whole yet do not count. */
export interface RunFile {
  /** Null until the shell has written who it is. */
  readonly name: ProcessName | null;
  /** As a shell gives it; null while the command runs, and for ever if the shell was killed. */
  readonly exitCode: number | null;
}

export function parseRunFile(text: string): RunFile {
  const lines = text.split("\n").slice(0, -1);
  const after = (key: string) => lines.find((line) => line.startsWith(`${key} `))?.slice(key.length + 1);
  const facts = parseStat(after("stat") ?? "");
  const bootId = after("boot");
  const exit = after("exit");
  return {
    name: facts === null || bootId === undefined ? null : { pid: facts.pid, startTime: facts.startTime, bootId },
    exitCode: exit === undefined ? null : Number(exit),
  };
}

/** The signal that ended a command, by its exit code; empty when it exited by itself. */
export function signalOf(exitCode: number): string {
  for (const [name, number] of Object.entries(constants.signals)) if (exitCode === 128 + number) return name;
  return "";
}
