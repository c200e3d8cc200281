/**
 * The machine of a rehearsed node: its images and the runs of its tasks, which behave as planned. It outlives the agent's
 * process; a power failure ends the runs, but not the images.
 */
import type {
  DriverOutcome,
  DriverTask,
  FoundTask,
  StartOutcome,
  TaskDriver,
  TaskExit,
} from "../../actors/agent/ports.ts";
import { containerDriver } from "../../machines/driver/container-task.ts";
import { healthOf } from "../../machines/driver/health-spec.ts";
import { GenericRuntimeSpec, TaskSpec } from "../../proto/gen/messages.ts";
import type { ProbeOutcome, Probes } from "../../runtime/ports/probes.ts";
import type { ProcessClock, SimClock } from "../../runtime/sim/clock.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import { artifactOf, type Behaviours } from "./behaviours.ts";
import { drawDuration, drawExponential } from "./draw.ts";
import type { BehaviourPlan } from "./plan.ts";

/** Tasks that no plan describes run at once and for ever. */
const plain: BehaviourPlan = {
  pull: { medianMs: 0, p99Ms: 0 },
  start: { medianMs: 0, p99Ms: 0 },
  stop: { medianMs: 0, p99Ms: 0 },
  startFailure: 0,
  meanLifeMs: null,
  run: null,
};

/** Time until a pull gives up on a registry that does not answer, in milliseconds: a few attempts to connect. */
const unreachableMs = 1_000;

/** The image registry of all nodes. */
export class Registry {
  /** Number of current outages. */
  outages = 0;

  get isUp(): boolean {
    return this.outages === 0;
  }
}

interface Run {
  readonly pid: number;
  readonly service: string;
  readonly behaviour: BehaviourPlan;
  /** It runs and, if it is checked, is healthy. */
  isWell: boolean;
  exit: TaskExit | null;
  readonly waiting: ((exit: TaskExit) => void)[];
}

interface MachineOptions {
  readonly clock: SimClock;
  readonly random: SimRandom;
  readonly behaviours: Behaviours;
  readonly registry: Registry;
  /** The number of a service's tasks that run (and are healthy, if they are checked) on this machine has changed by this much. */
  readonly onRunning: (service: string, change: 1 | -1) => void;
}

export class TaskMachine {
  readonly #options: MachineOptions;
  readonly #runs = new Map<string, Run>();
  /** Images on the disk. */
  readonly #images = new Set<string>();
  /** End of each pull in progress, in true time. */
  readonly #pulls = new Map<string, number>();
  #nextPid = 100;

  constructor(options: MachineOptions) {
    this.#options = options;
  }

  /** Number of tasks that run. */
  get count(): number {
    let count = 0;
    for (const { exit } of this.#runs.values()) if (exit === null) count += 1;
    return count;
  }

  losePower(): void {
    for (const run of this.#runs.values()) this.#notWell(run);
    this.#runs.clear();
    this.#pulls.clear();
  }

  /** The driver of one kind, for one life of the agent. */
  driver(kind: string, clock: ProcessClock, advertised: NonNullable<TaskDriver["advertised"]>): TaskDriver {
    const wait = (ms: number) => new Promise<void>((resolve) => void clock.after(ms, resolve));
    // Calls for one task run one after the other.
    const queues = new Map<string, Promise<unknown>>();
    const inOrder = <Result>(taskId: string, work: () => Promise<Result>): Promise<Result> => {
      const result = (queues.get(taskId) ?? Promise.resolve()).then(work);
      queues.set(taskId, result);
      return result;
    };
    return {
      kind,
      advertised,
      prepare: (task) => inOrder(task.id, () => this.#prepare(task, wait)),
      start: (task) => inOrder(task.id, () => this.#start(task, kind, wait)),
      wait: (taskId) =>
        new Promise((resolve) => {
          const tell = (exit: TaskExit): void => void clock.after(0, () => resolve(exit));
          const run = this.#runs.get(taskId);
          if (run === undefined) tell(lostExit);
          else if (run.exit !== null) tell(run.exit);
          else run.waiting.push(tell);
        }),
      find: async (taskId): Promise<FoundTask> => {
        await wait(1);
        const run = this.#runs.get(taskId);
        if (run === undefined) return { kind: "absent" };
        return run.exit === null ? { kind: "running", pid: run.pid } : { kind: "exited", pid: run.pid, exit: run.exit };
      },
      stop: (taskId) =>
        inOrder(taskId, async () => {
          const run = this.#runs.get(taskId);
          if (run === undefined) return null;
          // It serves nobody any more while it stops.
          this.#notWell(run);
          if (run.exit === null) await wait(drawDuration(this.#options.random, run.behaviour.stop));
          this.#end(run, { code: 143, signal: "SIGTERM", reason: "", lastOutput: "" });
          return run.exit;
        }),
      // Probes find it by this.
      address: (taskId) => taskId,
      remove: (taskId) =>
        inOrder(taskId, async () => {
          queues.delete(taskId);
          if (this.#runs.get(taskId)?.exit !== null) return;
          this.#runs.delete(taskId);
        }),
      close: () => {},
    };
  }

  /** Any probe of a task passes while the task is healthy. */
  probes(clock: ProcessClock): Probes {
    const look = (taskId: string): Promise<ProbeOutcome> =>
      new Promise((resolve) => {
        clock.after(1, () =>
          resolve(
            this.#runs.get(taskId)?.isWell === true
              ? { kind: "passed" }
              : { kind: "failed", reason: "connection refused" },
          ),
        );
      });
    return { http: ({ address }) => look(address), tcp: ({ address }) => look(address) };
  }

  async #prepare(task: DriverTask, wait: (ms: number) => Promise<void>): Promise<DriverOutcome> {
    const { clock, random, registry } = this.#options;
    const image = artifactOf(task);
    const pullMs = drawDuration(random, this.#behaviour(task).pull);
    if (this.#images.has(image)) return { kind: "done" };
    const refused = { kind: "refused", reason: `cannot pull ${image}: the registry does not answer` } as const;
    if (!registry.isUp) {
      await wait(unreachableMs);
      return this.#images.has(image) ? { kind: "done" } : refused;
    }
    // One pull of an image at a time: others wait for it.
    const endsAt = this.#pulls.get(image) ?? clock.elapsed + pullMs;
    this.#pulls.set(image, endsAt);
    await wait(endsAt - clock.elapsed);
    this.#pulls.delete(image);
    if (!registry.isUp && !this.#images.has(image)) return refused;
    this.#images.add(image);
    return { kind: "done" };
  }

  async #start(task: DriverTask, kind: string, wait: (ms: number) => Promise<void>): Promise<StartOutcome> {
    const { clock, random } = this.#options;
    const behaviour = this.#behaviour(task);
    const startMs = drawDuration(random, behaviour.start);
    const fails = random.chance(behaviour.startFailure);
    const known = this.#runs.get(task.id);
    if (known !== undefined) return { kind: "started", pid: known.pid };
    const run: Run = {
      pid: this.#nextPid++,
      service: task.serviceName,
      behaviour,
      isWell: false,
      exit: null,
      waiting: [],
    };
    // The agent checks its processes from outside; an engine starts its containers, and checks them itself.
    const begin = (): void => {
      if (this.#runs.get(task.id) !== run || run.exit !== null) return;
      if (fails) this.#end(run, failed);
      else this.#runWell(run);
    };
    this.#runs.set(task.id, run);
    if (isChecked(task, kind)) {
      clock.schedule(begin, startMs, null);
      return { kind: "started", pid: run.pid };
    }
    await wait(startMs);
    begin();
    return { kind: "started", pid: run.pid };
  }

  #behaviour(task: DriverTask): BehaviourPlan {
    return this.#options.behaviours.of(task) ?? plain;
  }

  #runWell(run: Run): void {
    const { clock, onRunning, random } = this.#options;
    run.isWell = true;
    onRunning(run.service, 1);
    const { meanLifeMs, run: planned } = run.behaviour;
    if (planned !== null) {
      const lengthMs = drawDuration(random, planned.length);
      const exit = random.chance(planned.failure) ? failed : completed;
      clock.schedule(() => this.#end(run, exit), lengthMs, null);
    }
    if (meanLifeMs === null) return;
    clock.schedule(() => this.#end(run, failed), drawExponential(random, meanLifeMs), null);
  }

  #notWell(run: Run): void {
    if (!run.isWell) return;
    run.isWell = false;
    this.#options.onRunning(run.service, -1);
  }

  #end(run: Run, exit: TaskExit): void {
    if (run.exit !== null) return;
    this.#notWell(run);
    run.exit = exit;
    for (const tell of run.waiting.splice(0)) tell(exit);
  }
}

const lostExit: TaskExit = { code: -1, signal: "", reason: "the exit was not observed", lastOutput: "" };
const failed: TaskExit = { code: 1, signal: "", reason: "", lastOutput: "" };
const completed: TaskExit = { code: 0, signal: "", reason: "", lastOutput: "" };

/** Whether the agent itself checks the task's health. */
function isChecked({ payload }: DriverTask, kind: string): boolean {
  if (kind === containerDriver || payload === null) return false;
  return healthOf(TaskSpec.create({ generic: GenericRuntimeSpec.create({ kind, payload }) })) !== null;
}
