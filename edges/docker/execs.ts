/**
 * The commands that clients have created with `/containers/{id}/exec`, and their outcome. They belong to this manager: another
 * one does not know them.
 *
 * EX1: each command runs at most once.
 * EX2: at most `execsMax` are remembered. A new one displaces the one that ended first, then the oldest that nobody has started;
 *      when all of them run, it is refused.
 */
import { randomBytes } from "node:crypto";
import type { TaskExecIdentity, TaskInput } from "../../proto/gen/messages.ts";
import { Failure } from "./failure.ts";

/** As many as a manager serves calls at a time (`actors/task-calls.ts`). */
const execsMax = 1_000;

export type SendInput = (input: Partial<TaskInput>) => Promise<void>;

type ExecState =
  | { readonly kind: "created" }
  /** `send`: null before the manager has accepted the call. */
  | { readonly kind: "running"; readonly send: SendInput | null }
  | { readonly kind: "ended"; readonly exitCode: number };

export interface Exec {
  /** 64 hexadecimal digits that cannot be guessed. */
  readonly id: string;
  readonly containerId: string;
  readonly taskId: string;
  readonly command: readonly string[];
  /** Null: that of the task. */
  readonly identity: TaskExecIdentity | null;
  readonly hasTerminal: boolean;
  readonly attaches: { readonly stdin: boolean; readonly stdout: boolean; readonly stderr: boolean };
  readonly detachKeys: string;
  state: ExecState;
}

export class Execs {
  readonly #execs = new Map<string, Exec>();

  /** Throws Failure. EX2 */
  create(wanted: Omit<Exec, "id" | "state">): Exec {
    if (this.#execs.size >= execsMax) this.#displace();
    const exec: Exec = { ...wanted, id: randomBytes(32).toString("hex"), state: { kind: "created" } };
    this.#execs.set(exec.id, exec);
    return exec;
  }

  /** Throws Failure. */
  find(id: string): Exec {
    const exec = this.#execs.get(id);
    if (exec === undefined) throw new Failure(404, `No such exec instance: ${id}`);
    return exec;
  }

  /** Throws Failure. EX1 */
  start(exec: Exec): void {
    if (exec.state.kind === "running") throw new Failure(409, `Error: Exec command ${exec.id} is already running`);
    if (exec.state.kind === "ended") throw new Failure(409, `Error: Exec command ${exec.id} has already run`);
    exec.state = { kind: "running", send: null };
  }

  end(exec: Exec, exitCode: number): void {
    exec.state = { kind: "ended", exitCode };
    // To the end of the order, in which those that ended first come first.
    if (this.#execs.delete(exec.id)) this.#execs.set(exec.id, exec);
  }

  #displace(): void {
    const all = [...this.#execs.values()];
    const victim = all.find(({ state }) => state.kind === "ended") ?? all.find(({ state }) => state.kind === "created");
    if (victim === undefined)
      throw new Failure(
        503,
        `this manager already runs ${execsMax} commands: wait for one to end, or ask another manager`,
      );
    this.#execs.delete(victim.id);
  }
}
