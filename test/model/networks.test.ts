// A node's networks: what the kernel is programmed with, and the name server of its tasks.
import test from "ava";
import { nameServerMachine, type NameServerEvent } from "../../machines/discovery/name-server.machine.ts";
import { programmingMachine, type ProgrammingEvent } from "../../machines/networks/programming.machine.ts";
import { isAsked, isDue, isIn, walkChart } from "../support/chart-model.ts";

test("the kernel gets one update at a time, and the last one has everything that is known", async (t) => {
  const events: readonly ProgrammingEvent[] = [
    { type: "facts.changed" },
    { type: "kernel.programmed" },
    { type: "kernel.refused", reason: "no such device" },
  ];
  await walkChart(t, {
    machine: programmingMachine,
    inputs: [undefined],
    events,
    matters: ({ hasChanged }: { readonly hasChanged: boolean }) => hasChanged,
    /** `isNew`: something changed after the update under way, or the last one, began. */
    memory: { isNew: false, isRunning: false },
    check: ({ isNew, isRunning }, step, claim) => {
      const { asked, event, from } = step;
      const begins = isAsked(asked, "program");
      const ends = event?.type === "kernel.programmed" || event?.type === "kernel.refused";
      claim("VB1", !begins || !isRunning || ends, "two updates run at once");
      const isStale = (isNew || event?.type === "facts.changed") && !begins;
      claim("VB1", !isIn(step, "current") || !isStale, "it rests although something has changed");
      const isRefused = event?.type === "kernel.refused" && isIn(from, "programming");
      claim("VB2", !isRefused || isIn(step, "waiting"), "a failed update counts as done");
      claim("VB2", !isDue(event, "backoff") || begins, "a failed update is not tried again");
      return { isNew: isStale, isRunning: begins || (isRunning && !ends) };
    },
  });
});

test("a wanted name server is opened again after each loss, and an unwanted one is removed until nothing is left", async (t) => {
  const events: readonly NameServerEvent[] = [
    { type: "names.wanted" },
    { type: "names.unwanted" },
    { type: "names.left" },
    { type: "server.opened" },
    { type: "server.lost", reason: "in use" },
    { type: "server.cleared" },
    { type: "server.kept" },
  ];
  await walkChart(t, {
    machine: nameServerMachine,
    inputs: [undefined],
    events,
    // The wait grows with each attempt, so the number of failures matters up to the second.
    matters: ({ failures }: { readonly failures: number }) => Math.min(failures, 2),
    memory: { isWanted: false },
    check: ({ isWanted }, step, claim) => {
      const { asked, context, event, from } = step;
      const wants = event?.type === "names.wanted" || (isWanted && event?.type !== "names.unwanted");
      const failures = (context as { readonly failures: number }).failures;
      const before = (from?.snapshot.context as { readonly failures: number } | undefined)?.failures ?? 0;
      const isLost = event?.type === "server.lost" && (isIn(from, "serving") || isIn(from, "opening"));
      claim(
        "NV1",
        !isLost || (isIn(step, "waiting") && failures === before + 1),
        "its loss does not count as a failure",
      );
      claim("NV1", !wants || !isIn(step, "closed"), "it rests although it is wanted");
      claim("NV1", !(isDue(event, "backoff") && isIn(from, "waiting")) || isAsked(asked, "open"), "it stays lost");
      const isKept = event?.type === "server.kept" && isIn(from, "clearing");
      claim("NV2", !isKept || isIn(step, "dirty"), "a failed removal counts as done");
      claim("NV2", !(isDue(event, "backoff") && isIn(from, "dirty")) || isAsked(asked, "close"), "the rest stays");
      return { isWanted: wants };
    },
  });
});
