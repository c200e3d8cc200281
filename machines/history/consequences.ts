/** The summary of what followed a change: how many tasks were created, placed, running, failed, and when. */
import { observedState } from "../task.ts";
import { Consequence, TaskState, type Origin, type Task } from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";

/** Maximum number of lines for one change; further ones are counted in one more line. */
const linesMax = 40;
/** Maximum number of details of a line, such as nodes or errors; further ones are counted in one more. */
const detailsMax = 12;
const detailTextMax = 160;

interface Line {
  readonly text: string;
  readonly origin: Origin;
  /** 0: not a count but a single event. */
  count: number;
  readonly firstMs: number;
  lastMs: number;
  readonly details: Map<string, number>;
}

export class Consequences {
  readonly #lines = new Map<string, Line>();

  get isEmpty(): boolean {
    return this.#lines.size === 0;
  }

  /** Counts one more of `text`, such as `tasks created`. */
  count(text: string, origin: Origin, atMs: number, detail = ""): void {
    let line = this.#lines.get(`${origin} ${text}`);
    if (line === undefined) {
      const isOver = this.#lines.size >= linesMax;
      const key = isOver ? "over" : `${origin} ${text}`;
      line = this.#lines.get(key);
      if (line === undefined) {
        const fresh = { text: isOver ? "further changes" : text, origin, count: 0, firstMs: atMs, lastMs: atMs };
        this.#lines.set(key, (line = { ...fresh, details: new Map<string, number>() }));
      }
    }
    line.count += 1;
    line.lastMs = atMs;
    if (detail === "") return;
    const short = detail.length > detailTextMax ? `${detail.slice(0, detailTextMax)}…` : detail;
    const known = line.details.has(short) || line.details.size < detailsMax ? short : "others";
    line.details.set(known, (line.details.get(known) ?? 0) + 1);
  }

  /** Adds an event that happened once. */
  say(text: string, origin: Origin, atMs: number, detail = ""): void {
    if (this.#lines.size >= linesMax) {
      this.count(text, origin, atMs);
      return;
    }
    const details = new Map(detail === "" ? [] : [[detail.slice(0, detailTextMax), 1] as const]);
    this.#lines.set(`${this.#lines.size} said`, { text, origin, count: 0, firstMs: atMs, lastMs: atMs, details });
  }

  /** The lines, in the order in which they began; then starts over. */
  take(): readonly Consequence[] {
    const taken = [...this.#lines.values()].toSorted((a, b) => a.firstMs - b.firstMs);
    this.#lines.clear();
    return taken.map(({ text, origin, count, firstMs, lastMs, details }) =>
      Consequence.create({
        text,
        origin,
        count,
        first: timestampOf(firstMs),
        last: timestampOf(lastMs),
        details: [...details].map(([detail, times]) => (times === 1 ? detail : `${detail} ×${times}`)),
      }),
    );
  }
}

/** Counts a task's change if it is of interest. `where`: its node, or its service, as `details`. */
export function countTask(
  consequences: Consequences,
  old: Task | null,
  task: Task | null,
  where: string,
  origin: Origin,
  atMs: number,
): void {
  if (task === null) {
    consequences.count("tasks deleted", origin, atMs);
    return;
  }
  const before = old === null ? TaskState.NEW : observedState(old);
  const state = observedState(task);
  if (old === null) consequences.count("tasks created", origin, atMs);
  else if (task.desiredState !== old.desiredState && task.desiredState > TaskState.RUNNING) {
    consequences.count("tasks asked to stop", origin, atMs);
  }
  if (state === before && old !== null) return;
  const words = stateWords[state];
  if (words === undefined) return;
  const fault = task.status?.err ?? "";
  const isFault = state === TaskState.FAILED || state === TaskState.REJECTED;
  const detail = isFault && fault !== "" ? `${where === "" ? "" : `${where}: `}${fault}` : where;
  consequences.count(words, origin, atMs, detail);
}

/** The states that get a line; a task passes the others within moments. */
const stateWords: Readonly<Partial<Record<TaskState, string>>> = {
  [TaskState.ASSIGNED]: "tasks placed",
  [TaskState.RUNNING]: "tasks running",
  [TaskState.COMPLETE]: "tasks completed",
  [TaskState.SHUTDOWN]: "tasks shut down",
  [TaskState.FAILED]: "tasks failed",
  [TaskState.REJECTED]: "tasks rejected",
  [TaskState.REMOVE]: "tasks removed",
  [TaskState.ORPHANED]: "tasks lost with their node",
};
