/**
 * Running commands in units, as `muster task exec` does: by the task's driver, which has to be one of ours or a plugin. Clients of
 * 1.x are answered when all is over; of later ones `operations.ts` keeps what was begun.
 */
import { TaskCallRequest, TaskExec, TaskInput, type TaskAnswer } from "../../../proto/gen/messages.ts";
import type { Call, FacadeSources } from "../facade.ts";
import type { Params } from "../params.ts";
import { RequestError } from "../request-error.ts";
import type { Json } from "../results.ts";
import { requestErrorOf } from "../rpc-failure.ts";
import { readForAnswer } from "./one-answer.ts";
import { notSupported, type Subjects } from "./subjects.ts";

/** Juju's own default, and the longest that a request is kept open for. */
const timeoutMsDefault = 300_000;
const timeoutMsMax = 3_600_000;
/** Of one unit; what comes after is dropped and `isCut` says so. A client reads 4 MiB in one message. */
export const outputBytesMax = 512 * 1024;
/** All of them run at once. */
const unitsMax = 100;

export interface Ran {
  readonly unit: string;
  readonly machine: string;
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  readonly code: number;
  readonly isCut: boolean;
  /** Why it could not be run; null: it was. */
  readonly error: RequestError | null;
}

/** A signal's number is told as shells do. */
const signalBase = 128;

export class Actions {
  readonly #sources: FacadeSources;
  readonly #subjects: Subjects;

  constructor(sources: FacadeSources, subjects: Subjects) {
    this.#sources = sources;
    this.#subjects = subjects;
  }

  /** Answers when all have ended. */
  async run(call: Call): Promise<readonly Ran[]> {
    const { commands, units, timeoutMs } = this.wanted(call);
    return Promise.all(units.map((unit) => this.runIn(call, unit, commands, timeoutMs)));
  }

  /** What Run asks for, in either generation: commands for a shell, units, applications, and a time in nanoseconds. Throws RequestError. */
  wanted({ params }: Pick<Call, "params">): {
    readonly commands: string;
    readonly units: readonly string[];
    readonly timeoutMs: number;
  } {
    const commands = params.text("commands");
    if (commands === "") throw new RequestError("commands are required", "bad request");
    if (params.texts("machines").length > 0)
      throw notSupported("commands are run in units: name those, or applications");
    const units = this.#unitsOf(params);
    if (units.length === 0) throw new RequestError("no unit is named", "bad request");
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

  /** Never rejects with RequestError: what was refused is part of the result. */
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

  /** Nobody has anything to type; without this a command that reads its input would wait. */
  async #closeInput(call: Call, callId: string): Promise<void> {
    try {
      await this.#sources.taskAccess.Send(TaskInput.create({ callId, number: 1, close: true }), call.rpc);
    } catch {
      // It has ended by now, and says how by itself.
    }
  }
}

function timeoutOf(params: Params): number {
  const nanoseconds = params.integer("timeout") ?? 0;
  if (nanoseconds < 0) throw new RequestError("a timeout is not below 0", "not valid");
  return nanoseconds === 0 ? timeoutMsDefault : Math.min(timeoutMsMax, Math.max(1, Math.round(nanoseconds / 1e6)));
}

/** The result of 1.x: output is base64. */
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
