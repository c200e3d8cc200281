// From a created task to its node: the task's life, allocation and scheduling.
import test from "ava";
import { allocatorMachine } from "../../machines/allocation/allocator.machine.ts";
import { schedulerMachine } from "../../machines/scheduling/scheduler.machine.ts";
import { mayDesire, stateAfter, taskMachine, type TaskEvent } from "../../machines/task.machine.ts";
import { TaskState } from "../../proto/gen/messages.ts";
import { isAsked, isDue, isIn, walkChart } from "../support/chart-model.ts";
import { checkLoop, loopEvents, loopMemory, type LoopMemory } from "../support/loop-model.ts";

const stateIn = (states: readonly string[]): TaskState => TaskState[(states[0] ?? "NEW") as keyof typeof TaskState];

test("a task's state only increases, and each event leads to the state of its name", async (t) => {
  await walkChart(t, {
    machine: taskMachine,
    inputs: [undefined],
    events: (Object.keys(stateAfter) as TaskEvent["type"][]).map((type) => ({ type })),
    memory: null,
    check: (_, { event, from, states }, claim) => {
      const [before, after] = [stateIn(from?.states ?? []), stateIn(states)];
      claim("T1", after >= before, "its state decreases");
      const moved = from !== null && after !== before;
      claim("T2", !moved || stateAfter[event?.type as TaskEvent["type"]] === after, "another mover moves it");
      claim("T3", !mayDesire(after, before), "its desired state may decrease");
      return null;
    },
    ends: true,
  });
});

test("the allocator misses no change, and shows what cannot be served", async (t) => {
  const phases = ["idle", "blocked"] as const;
  await walkChart(t, {
    machine: allocatorMachine,
    inputs: [undefined],
    events: loopEvents(
      phases.flatMap((phase) => [true, false].map((isPartial) => ({ phase, isPartial }))),
      { writes: false },
    ),
    memory: loopMemory,
    check: (memory, step, claim) => {
      const { context, event, from } = step;
      const { phase } = (context as { readonly verdict: { readonly phase: string } }).verdict;
      const rests = phases.find((each) => isIn(step, each));
      claim("A3", rests === undefined || rests === phase, "a task that cannot proceed does not show it");
      const isHelp = event?.type === "work.arrived" && isIn(from, "blocked");
      claim("A3", !isHelp || isIn(step, "gathering"), "a blocked task is not tried again");
      return checkLoop(memory, step, claim);
    },
  });
});

test("the scheduler requests one round at a time, within its proposals, and holds refused tasks back", async (t) => {
  const verdicts = [true, false].flatMap((isPartial) => [true, false].map((hasStale) => ({ isPartial, hasStale })));
  const proposalsMax = 2;
  await walkChart(t, {
    machine: schedulerMachine,
    inputs: [{ proposalsMax, retryMs: 200 }],
    events: [
      ...loopEvents(verdicts, { writes: false }),
      { type: "proposal.sent" as const },
      { type: "proposal.settled" as const, returned: 0 },
      { type: "proposal.settled" as const, returned: 3 },
    ],
    // A round may send several proposals, as the last one may exceed the limit; more than one too many adds nothing.
    matters: ({ proposals, isTouched, verdict }: { proposals: number; isTouched: boolean; verdict: unknown }) => [
      Math.min(proposals, proposalsMax + 1),
      isTouched,
      verdict,
    ],
    memory: { isTouched: false },
    check: (memory: LoopMemory, step, claim) => {
      const { asked, context, event, from } = step;
      const decides = isAsked(asked, "decide");
      claim("S1", !decides || !isIn(from, "rounds.deciding"), "a second round is requested");
      const { proposals } = context as { readonly proposals: number };
      claim("S2", !decides || proposals < proposalsMax, "a round begins at the limit of proposals");
      const isFree = event?.type === "proposal.settled" && isIn(from, "rounds.full");
      claim("S2", !isFree || isAsked(asked, "gather"), "no round follows when a proposal settles");
      const isReleased = isAsked(asked, "releaseHeld");
      claim("S3", isReleased === isDue(event, "retry"), "refused tasks return before the retry delay, or never");
      const isRefused = event !== null && "returned" in event && event.returned > 0;
      claim("S3", !isRefused || isIn(step, "later.holding"), "refused tasks are not held back");
      return checkLoop(memory, step, claim, { region: "rounds.", ends: ["full"] });
    },
  });
});
