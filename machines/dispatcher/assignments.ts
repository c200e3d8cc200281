/**
 * One stream of assignments to one node: `Assignments`, or the deprecated `Tasks`.
 *
 *   snapshotting ──▶ streaming { flowing ⇄ stalled } ──▶ ended
 *
 * G1: the first message is COMPLETE, and the stream says nothing before it.
 * G2: each INCREMENTAL message applies to what the one before it resulted in: no gap, no repetition. A node that sees a
 *     gap reopens the stream in a busy loop for ever (trap 7), so a stream that cannot go on is ended instead.
 * G3: a node that does not read makes nothing grow here but the set of what is to be looked at, which is bounded by its tasks.
 */
import { assign, setup } from "xstate";
import type { AssignmentChange } from "../../proto/gen/messages.ts";
import { effect } from "../effect.ts";

export const assignmentLimits = {
  /** SwarmKit gathers for 100 ms, which is most of its time from create to RUNNING; a few milliseconds already put what one
   *  transaction did into one message a node. In milliseconds. */
  batchMs: 4,
  /** The same after a batch that concerned more streams than are served at once: many tasks are being placed, and a message
   *  costs its node and this manager more than the tasks in it. */
  busyBatchMs: 25,
  /** Streams that are told in one go, and changes after which no further one is: a few milliseconds, in which heartbeats wait. */
  streamsAtOnce: 32,
  changesAtOnce: 200,
  /** Changes in one INCREMENTAL message; more are cut into several. Keeps a message of ordinary tasks under 1 MB. */
  changesMax: 500,
  /** Bytes that wait for the node to read before the stream stalls. */
  bufferedBytesMax: 4 * 1024 * 1024,
  /** Milliseconds between two looks at a stalled stream. */
  stallCheckMs: 50,
  /** Open streams of one session. An agent has one; each costs a whole COMPLETE set, so a loop of reopening ends here. */
  streamsMax: 4,
} as const;

export type AssignmentsEvent =
  | { readonly type: "snapshot.taken"; readonly changes: readonly AssignmentChange[] }
  /** Something was noted that the node must hear of. */
  | { readonly type: "changes.noted" }
  | { readonly type: "changes.collected"; readonly changes: readonly AssignmentChange[] }
  | { readonly type: "peer.stalled" }
  | { readonly type: "stream.ended" };

export interface AssignmentsInput {
  readonly nodeId: string;
  readonly sessionId: string;
  readonly method: "Assignments" | "Tasks";
}

export interface AssignmentsContext extends AssignmentsInput {
  /** Number of the last message; `results_in` is its decimal text. */
  readonly sequence: number;
}

interface Message {
  readonly changes: readonly AssignmentChange[];
  readonly appliesTo: string;
  readonly resultsIn: string;
}

export const assignmentsMachine = setup({
  types: { context: {} as AssignmentsContext, events: {} as AssignmentsEvent, input: {} as AssignmentsInput },
  actions: {
    /** Looks at what was noted; answered by `changes.collected` for each message's worth, by `peer.stalled` or by nothing. */
    collectChanges: effect("collectChanges"),
    writeComplete: effect<Message>("writeComplete"),
    writeIncrement: effect<Message>("writeIncrement"),
    reportUnexpected: effect("reportUnexpected"),
    countMessage: assign(({ context }) => ({ sequence: context.sequence + 1 })),
  },
  delays: { stallCheck: assignmentLimits.stallCheckMs },
}).createMachine({
  id: "assignments",
  context: ({ input }) => ({ ...input, sequence: 0 }),
  options: { maxIterations: 1_000 },
  initial: "snapshotting",
  on: {
    "stream.ended": ".ended",
    "*": { actions: "reportUnexpected" },
  },
  states: {
    snapshotting: {
      description: "Gathering the complete set of what the node must have. G1",
      on: {
        "changes.noted": {},
        "snapshot.taken": {
          target: "streaming",
          actions: [
            "countMessage",
            {
              type: "writeComplete",
              params: ({ context, event }) => ({
                changes: event.changes,
                appliesTo: "",
                resultsIn: String(context.sequence),
              }),
            },
          ],
        },
      },
    },
    streaming: {
      description: "The node has the complete set; sending changes.",
      initial: "flowing",
      on: {
        "changes.collected": {
          actions: [
            "countMessage",
            {
              type: "writeIncrement",
              params: ({ context, event }) => ({
                changes: event.changes,
                appliesTo: String(context.sequence - 1),
                resultsIn: String(context.sequence),
              }),
            },
          ],
        },
      },
      states: {
        flowing: {
          description: "The node reads as fast as the manager writes. G2",
          on: { "changes.noted": { actions: "collectChanges" }, "peer.stalled": "stalled" },
        },
        stalled: {
          description: "The node is not reading its stream: changes are queued and sent when it resumes. G3",
          on: { "changes.noted": {}, "peer.stalled": { target: "stalled", reenter: true } },
          after: { stallCheck: { target: "flowing", actions: "collectChanges" } },
        },
      },
    },
    ended: {
      description: "The call or the session ended.",
      type: "final",
    },
  },
});
