// The lease of another manager's feed.
import test from "ava";
import {
  leaseMachine,
  type LeaseContext,
  type LeaseEvent,
  type LeaseLoss,
} from "../../machines/inspection/lease.machine.ts";
import { isAsked, isIn, paramsOf, walkChart } from "../support/chart-model.ts";

test("a lease tells a loss once, and asks again as long as its listener is there", async (t) => {
  const events: readonly LeaseEvent[] = [
    { type: "manager.answered" },
    { type: "manager.refused" },
    { type: "manager.missing" },
    { type: "manager.silent" },
    { type: "snapshot.wanted" },
    { type: "listener.left" },
  ];
  await walkChart(t, {
    machine: leaseMachine,
    inputs: [{ managerId: "m2" }],
    events,
    matters: ({ missed }: LeaseContext) => missed,
    memory: { isLost: false },
    check: ({ isLost }, { asked, states, event, from }, claim) => {
      const losses = paramsOf<{ loss: LeaseLoss }>(asked, "tellLost");
      claim("FL1", losses.length <= 1 && !(isLost && losses.length > 0), "a loss is announced twice");
      claim("FL1", !isIn({ states }, "away") || isLost || losses.length === 1, "it is away, and nobody learned of it");
      const isDue = event?.type.startsWith("xstate.after.") === true;
      claim("FL2", !isDue || isAsked(asked, "ask"), "the end of the interval asks nobody");
      claim(
        "FL2",
        from === null || isIn({ states }, "over") === (isIn(from, "over") || event?.type === "listener.left"),
        "it ends although the listener is there",
      );
      return { isLost: (isLost || losses.length > 0) && !isIn({ states }, "held") };
    },
  });
});
