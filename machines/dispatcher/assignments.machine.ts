/**
 * One stream of assignments to one node: `Assignments`, or the deprecated `Tasks`.
 *
 *   snapshotting ──▶ streaming { flowing ⇄ stalled } ──▶ ended
 *
 * G1: the first message is COMPLETE; the stream sends nothing before it.
 * G2: each INCREMENTAL message applies to the result of the previous one: no gaps, no repetitions. A node that sees a gap
 *     reopens the stream in a busy loop forever (trap 7), so a stream that cannot continue is ended instead.
 * G3: a node that does not read makes nothing grow here except the set of changed objects, which is bounded by its tasks.
 */
import { assign } from "xstate";
import type { AssignmentChange } from "../../proto/gen/messages.ts";
import { chart, effect } from "../chart.ts";

export const assignmentLimits = {
  /**
   * In milliseconds. SwarmKit batches for 100 ms, which is most of its time from create to RUNNING; a few milliseconds are
   * enough to put the changes of one transaction into one message per node.
   */
  batchMs: 4,
  /**
   * The same after a batch that concerned more streams than are served at once: many tasks are being placed, and a message
   * costs its node and this manager more than the tasks in it.
   */
  busyBatchMs: 25,
  /**
   * Streams served in one turn, and changes after which no further stream is: a turn of a few milliseconds, during which
   * heartbeats wait.
   */
  streamsAtOnce: 32,
  changesAtOnce: 200,
  /** Changes in one INCREMENTAL message; more are split. Keeps a message of ordinary tasks under 1 MB. */
  changesMax: 500,
  /** Bytes that may be buffered for the node before the stream stalls. */
  bufferedBytesMax: 4 * 1024 * 1024,
  /** Milliseconds between two checks of a stalled stream. */
  stallCheckMs: 50,
  /** Open streams of one session. An agent has one; each costs a COMPLETE set, so this stops a loop of reopening. */
  streamsMax: 4,
} as const;

type AssignmentsEvent =
  | { readonly type: "snapshot.taken"; readonly changes: readonly AssignmentChange[] }
  /** Something changed that the node must be sent. */
  | { readonly type: "changes.noted" }
  | { readonly type: "changes.collected"; readonly changes: readonly AssignmentChange[] }
  | { readonly type: "peer.stalled" }
  | { readonly type: "stream.ended" };

export interface AssignmentsInput {
  readonly nodeId: string;
  readonly sessionId: string;
  readonly method: "Assignments" | "Tasks";
}

interface AssignmentsContext extends AssignmentsInput {
  /** Number of the last message; its decimal form is `results_in`. */
  readonly sequence: number;
}

interface Message {
  readonly changes: readonly AssignmentChange[];
  readonly appliesTo: string;
  readonly resultsIn: string;
}

export const assignmentsMachine = chart({
  types: { context: {} as AssignmentsContext, events: {} as AssignmentsEvent, input: {} as AssignmentsInput },
  effects: {
    /** Computes the changes; answered by `changes.collected` for each message, by `peer.stalled`, or by nothing. */
    collectChanges: effect(),
    writeComplete: effect<Message>(),
    writeIncrement: effect<Message>(),
  },
  actions: {
    countMessage: assign(({ context }) => ({ sequence: context.sequence + 1 })),
  },
  delays: { stallCheck: assignmentLimits.stallCheckMs },
  shows: { context: ["nodeId", "sessionId.$same", "method", "sequence"] },
}).createMachine({
  id: "assignments",
  context: ({ input }) => ({ ...input, sequence: 0 }),
  initial: "snapshotting",
  on: {
    "stream.ended": ".ended",
  },
  states: {
    snapshotting: {
      description: "Gathering the complete set of what the node must have. G1",
      meta: {
        waitingFor: "the complete set, before anything is sent",
        wokenBy: { "snapshot.taken": "the set from the replica" },
      },
      ignore: ["changes.noted"],
      on: {
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
          meta: {
            waitingFor: "a change of what the node must have",
            wokenBy: { "changes.noted": "the commit of a change", "peer.stalled": "an unread stream" },
          },
          on: { "changes.noted": { actions: "collectChanges" }, "peer.stalled": "stalled" },
        },
        stalled: {
          description: "The node is not reading its stream: changes are queued and sent when it resumes. G3",
          meta: {
            waitingFor: "the node to read its stream",
            wokenBy: { stallCheck: "the next look at the stream", "stream.ended": "the end of the call" },
          },
          ignore: ["changes.noted"],
          on: { "peer.stalled": { target: "stalled", reenter: true } },
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
