/**
 * A simulated node's hardware: a disk and the runs of tasks. It outlives the agent's process, as real tasks outlive an
 * agent's crash; only a power failure ends the runs.
 */
import type {
  AgentDisk,
  DriverOutcome,
  DriverTask,
  FoundTask,
  StartOutcome,
  TaskDriver,
  TaskExit,
} from "../../actors/agent/ports.ts";
import type { SimClock, ProcessClock } from "../../runtime/sim/clock.ts";
import type { SimDisk } from "../../runtime/sim/disk.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";
import { linePeriodMs, simOutput, type SimLine } from "./output.ts";
import { refusedPayload, stuckMs, stuckPayload } from "../workloads/rollout.ts";

/** How simulated tasks behave. Changes during a run: tasks stop failing when faults end. */
export interface TaskHabits {
  /** Probability that a start is refused. */
  refusal: number;
  /** Probability that a run ends by itself, within `lifeMsMax`. */
  failure: number;
  lifeMsMax: number;
  prepareMsMax: number;
  startMsMax: number;
  stopMsMax: number;
  /** Written by a task as its last output, and quoted by the driver as the reason of a refusal. */
  says?: string;
}

/** Payload of tasks that end by themselves, successfully or, with the failure probability, not; others run until stopped. */
export const jobPayload = new Uint8Array([2]);

interface Run {
  readonly pid: number;
  /** Virtual time of the start; from then on the task writes a line every `linePeriodMs`. */
  readonly startedAt: number;
  endedAt: number | null;
  exit: TaskExit | null;
  readonly waiting: ((exit: TaskExit) => void)[];
}

const fsyncMsMax = 8;

export class SimMachine {
  readonly name: string;
  readonly #clock: SimClock;
  readonly #random: SimRandom;
  readonly #trace: SimTrace;
  readonly #habits: TaskHabits;
  readonly #runs = new Map<string, Run>();
  #nextPid = 100;

  constructor(name: string, options: { clock: SimClock; random: SimRandom; trace: SimTrace; habits: TaskHabits }) {
    this.name = name;
    this.#clock = options.clock;
    this.#random = options.random;
    this.#trace = options.trace;
    this.#habits = options.habits;
  }

  /** Ids of the running tasks. */
  running(): readonly string[] {
    return [...this.#runs].filter(([, run]) => run.exit === null).map(([id]) => id);
  }

  losePower(): void {
    this.#runs.clear();
  }

  /** The driver of one life of the agent. */
  driver(kind: string, clock: ProcessClock): TaskDriver {
    const draw = (mostMs: number) => this.#random.between(0, mostMs);
    const wait = (ms: number) => new Promise<void>((resolve) => clock.after(ms, resolve));
    // Calls for one task run one after the other.
    const queues = new Map<string, Promise<unknown>>();
    const inOrder = <Result>(taskId: string, work: () => Promise<Result>): Promise<Result> => {
      const before = queues.get(taskId) ?? Promise.resolve();
      const result = before.then(work);
      queues.set(taskId, result);
      return result;
    };
    return {
      kind,
      prepare: (task: DriverTask): Promise<DriverOutcome> =>
        inOrder(task.id, async () => {
          await wait(draw(this.#habits.prepareMsMax));
          return { kind: "done" };
        }),
      start: (task: DriverTask): Promise<StartOutcome> =>
        inOrder(task.id, async () => {
          await wait(draw(this.#habits.startMsMax));
          const known = this.#runs.get(task.id);
          if (known !== undefined) return { kind: "started", pid: known.pid };
          if (this.#random.chance(this.#habits.refusal)) {
            this.#trace.mark("task.refused");
            return { kind: "refused", reason: this.#habits.says ?? "refused by chance" };
          }
          const kind = task.payload?.value[0];
          if (kind === stuckPayload) await wait(stuckMs);
          if (kind === stuckPayload || kind === refusedPayload)
            return { kind: "refused", reason: this.#habits.says ?? "the kind is refused" };
          return { kind: "started", pid: this.#start(task.id, task.payload?.value[0] === jobPayload[0]) };
        }),
      wait: (taskId: string): Promise<TaskExit> =>
        new Promise((resolve) => {
          const run = this.#runs.get(taskId);
          const tell = (exit: TaskExit) => clock.after(0, () => resolve(exit));
          if (run === undefined) tell(lostExit);
          else if (run.exit !== null) tell(run.exit);
          else run.waiting.push(tell);
        }),
      find: async (taskId: string): Promise<FoundTask> => {
        await wait(draw(5));
        const run = this.#runs.get(taskId);
        if (run === undefined) return { kind: "absent" };
        this.#trace.mark("task.found");
        return run.exit === null ? { kind: "running", pid: run.pid } : { kind: "exited", pid: run.pid, exit: run.exit };
      },
      stop: (taskId: string): Promise<TaskExit | null> =>
        inOrder(taskId, async () => {
          if (this.#runs.get(taskId) === undefined) return null;
          await wait(draw(this.#habits.stopMsMax));
          this.#end(taskId, { code: 143, signal: "SIGTERM", reason: "", lastOutput: "" });
          return this.#runs.get(taskId)?.exit ?? null;
        }),
      output: (taskId, request) =>
        simOutput(
          () => this.#written(taskId),
          request,
          (resolve) => clock.after(linePeriodMs, resolve),
        ),
      remove: (taskId: string): Promise<void> =>
        inOrder(taskId, async () => {
          if (this.#runs.get(taskId)?.exit !== null) return;
          this.#runs.delete(taskId);
        }),
      close: () => {},
    };
  }

  /** The lines of a run so far, with their times. */
  #written(taskId: string): readonly SimLine[] {
    const run = this.#runs.get(taskId);
    if (run === undefined) return [];
    const count = Math.floor(((run.endedAt ?? this.#clock.now()) - run.startedAt) / linePeriodMs) + 1;
    return Array.from({ length: count }, (_, at) => ({
      atMs: run.startedAt + at * linePeriodMs,
      text: `${taskId} ${at + 1}`,
    }));
  }

  #start(taskId: string, isJob: boolean): number {
    const pid = this.#nextPid++;
    this.#runs.set(taskId, { pid, startedAt: this.#clock.now(), endedAt: null, exit: null, waiting: [] });
    this.#trace.write(this.name, `run ${taskId} begins`);
    const isFailing = this.#random.chance(this.#habits.failure);
    if (isFailing || isJob) {
      const code = isJob ? Number(isFailing) : this.#random.below(3);
      const lifeMs = this.#random.between(0, this.#habits.lifeMsMax);
      const { says = "" } = this.#habits;
      const exit = { code, signal: "", reason: says, lastOutput: says };
      this.#clock.schedule(() => this.#end(taskId, exit), lifeMs, null);
    }
    return pid;
  }

  #end(taskId: string, exit: TaskExit): void {
    const run = this.#runs.get(taskId);
    if (run === undefined || run.exit !== null) return;
    run.exit = exit;
    run.endedAt = this.#clock.now();
    this.#trace.write(this.name, `run ${taskId} ends ${exit.code}`);
    for (const tell of run.waiting.splice(0)) tell(exit);
  }
}

const lostExit: TaskExit = { code: -1, signal: "", reason: "the exit was not observed", lastOutput: "" };

/** The agent's records on a simulated disk: a save takes a moment, and is durable only after it. */
export function agentDisk(disk: SimDisk, clock: ProcessClock, random: SimRandom): AgentDisk {
  const flushed = (name: string) =>
    new Promise<void>((resolve) => {
      clock.after(random.between(0.5, fsyncMsMax), () => {
        disk.sync(name);
        resolve();
      });
    });
  return {
    load: async (name) => disk.read(name),
    save: async (name, data) => {
      disk.write(name, data);
      await flushed(name);
    },
    remove: async (name) => {
      disk.remove(name);
      await flushed(name);
    },
    list: async (prefix) => disk.names().filter((name) => name.startsWith(prefix)),
  };
}
