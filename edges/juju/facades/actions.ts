/**
 * Runs commands in units like `muster task exec`, through the task's driver, which must support it. Clients of 1.x get the
 * reply when all commands have ended; for newer ones, `operations.ts` keeps the commands and their results.
 */
import { TaskCallRequest, TaskExec, TaskInput, type TaskAnswer } from "../../../proto/gen/messages.ts";
import type { Call, FacadeSources } from "../facade.ts";
import type { Params } from "../params.ts";
import { RequestError } from "../request-error.ts";
import type { Json } from "../results.ts";
import { requestErrorOf } from "../rpc-failure.ts";
import { readForAnswer } from "./one-answer.ts";
import { notSupported, type Subjects } from "./subjects.ts";

/** Juju's default timeout, and the maximum for a request. */
const timeoutMsDefault = 300_000;
const timeoutMsMax = 3_600_000;
/** Per unit; further output is dropped and `isCut` is set. Clients accept 4 MiB in one message. */
export const outputBytesMax = 512 * 1024;
/** Maximum number of units in a request; all run in parallel. */
const unitsMax = 100;

export interface Ran {
  readonly unit: string;
  readonly machine: string;
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  readonly code: number;
  readonly isCut: boolean;
  /** Why the command could not run; null if it ran. */
  readonly error: RequestError | null;
}

/** Exit code for a signal, as in shells: this plus its number. */
const signalBase = 128;

export class Actions {
  readonly #sources: FacadeSources;
  readonly #subjects: Subjects;

  constructor(sources: FacadeSources, subjects: Subjects) {
    this.#sources = sources;
    this.#subjects = subjects;
  }

  /** Resolves when all commands have ended. */
  async run(call: Call): Promise<readonly Ran[]> {
    const { commands, units, timeoutMs } = this.wanted(call);
    return Promise.all(units.map((unit) => this.runIn(call, unit, commands, timeoutMs)));
  }

  /**
   * Parses a Run of either generation: shell commands, units, applications, and a timeout in nanoseconds. Throws RequestError.
   */
  wanted({ params }: Pick<Call, "params">): {
    readonly commands: string;
    readonly units: readonly string[];
    readonly timeoutMs: number;
  } {
    const commands = params.text("commands");
    if (commands === "") throw new RequestError("commands are required", "bad request");
    if (params.texts("machines").length > 0) throw notSupported("commands run in units: name units or applications");
    const units = this.#unitsOf(params);
    if (units.length === 0) throw new RequestError("at least one unit or application is required", "bad request");
    if (units.length > unitsMax) throw new RequestError(`more than ${unitsMax} units at once`, "quota limit exceeded");
    return { commands, units, timeoutMs: timeoutOf(params) };
  }

  #unitsOf(params: Params): readonly string[] {
    const units = new Set(params.texts("units"));
    for (const name of [...params.texts("applications"), ...params.texts("services")]) {
      const { id } = this.#subjects.application(name);
      for (const unit of this.#sources.feed.unitsOf(id)) if (unit.life === "alive") units.add(unit.id);
    }
    return [...units];
  }

  /** Never rejects with RequestError: refusals are part of the result. */
  async runIn(call: Call, unit: string, commands: string, timeoutMs: number): Promise<Ran> {
    const none = new Uint8Array();
    try {
      const { taskId, machine } = this.#subjects.unit(unit);
      return { unit, machine, error: null, ...(await this.#exec(call, taskId, commands, timeoutMs)) };
    } catch (error) {
      const refused = requestErrorOf(error);
      if (refused === null) throw error;
      return { unit, machine: "", stdout: none, stderr: none, code: 0, isCut: false, error: refused };
    }
  }

  /** Rejects with RpcError or RequestError. */
  async #exec(
    call: Call,
    taskId: string,
    commands: string,
    timeoutMs: number,
  ): Promise<Pick<Ran, "stdout" | "stderr" | "code" | "isCut">> {
    const [stdout, stderr]: [Uint8Array[], Uint8Array[]] = [[], []];
    let room = outputBytesMax;
    let isCut = false;
    let code = 0;
    const keep = (parts: Uint8Array[], data: Uint8Array): void => {
      isCut ||= data.length > room;
      parts.push(data.subarray(0, room));
      room -= Math.min(room, data.length);
    };
    const request = TaskCallRequest.create({
      taskId,
      exec: TaskExec.create({ command: ["/bin/sh", "-c", commands] }),
    });
    await readForAnswer<TaskAnswer>(this.#sources, call, {
      timeoutMs,
      begin: (sink, rpc) => this.#sources.taskAccess.Call(request, sink, rpc),
      onMessage: (answer) => {
        if (answer.number === 0) {
          void this.#closeInput(call, answer.callId);
          return false;
        }
        keep(stdout, answer.stdout);
        keep(stderr, answer.stderr);
        const { end } = answer;
        if (end !== null) code = end.exitCode === 0 && end.signal !== 0 ? signalBase + end.signal : end.exitCode;
        return false;
      },
    });
    return { stdout: Buffer.concat(stdout), stderr: Buffer.concat(stderr), code, isCut };
  }

  /** There is no input; an open stream would make a command that reads it wait. */
  async #closeInput(call: Call, callId: string): Promise<void> {
    try {
      await this.#sources.taskAccess.Send(TaskInput.create({ callId, number: 1, close: true }), call.rpc);
    } catch {
      // The command has ended, and its result is reported elsewhere.
    }
  }
}

function timeoutOf(params: Params): number {
  const nanoseconds = params.integer("timeout") ?? 0;
  if (nanoseconds < 0) throw new RequestError("a timeout must not be negative", "not valid");
  return nanoseconds === 0 ? timeoutMsDefault : Math.min(timeoutMsMax, Math.max(1, Math.round(nanoseconds / 1e6)));
}

/** The result for 1.x, with the output in base64. */
export function runResult({ unit, machine, stdout, stderr, code, error }: Ran): Json {
  return {
    Error: error?.message ?? "",
    UnitId: unit,
    MachineId: machine,
    Code: code,
    Stdout: Buffer.from(stdout).toString("base64"),
    Stderr: Buffer.from(stderr).toString("base64"),
  };
}
