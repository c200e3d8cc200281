// Cluster volumes: at their storage plugin, on a node, and the link to the plugin.
import test from "ava";
import type { Failing } from "../../machines/volumes/csi/calls.ts";
import type { PublicationStage, VolumeStage } from "../../machines/volumes/csi/stages.ts";
import { csiPluginMachine, noFacts, type CsiPluginEvent } from "../../machines/volumes/csi-plugin.machine.ts";
import { nodeVolumeMachine } from "../../machines/volumes/node-volume.machine.ts";
import { publicationMachine, type PublicationContext } from "../../machines/volumes/publication.machine.ts";
import { volumeMachine, type VolumeContext } from "../../machines/volumes/volume.machine.ts";
import { isAsked, isDue, isIn, walkChart } from "../support/chart-model.ts";
import type { Asked } from "../support/paths.ts";

const failings: readonly Failing[] = ["unclear", "refused"];

/** The last request of a chart until its answer arrives. */
interface Pending {
  /** Name of the effect; empty if everything was answered. */
  readonly request: string;
}

const isAnswer = ({ type }: { readonly type: string }): boolean =>
  type.startsWith("call.") || type.startsWith("write.");

/** Whether it answers the request that is not answered yet. */
const isAnswerTo = ({ request }: Pending, event: { readonly type: string }): boolean =>
  request !== "" && event.type.startsWith(request.startsWith("write") ? "write." : "call.");

function pendingAfter(
  { request }: Pending,
  { asked, event }: { readonly asked: readonly Asked[]; readonly event: { readonly type: string } | null },
  isRequest: (type: string) => boolean,
): Pending & { readonly isDouble: boolean } {
  const before = event !== null && isAnswer(event) ? "" : request;
  const [next, second] = asked.map(({ type }) => type).filter(isRequest);
  return { request: next ?? before, isDouble: second !== undefined || (next !== undefined && before !== "") };
}

/** Events of a chart that takes its next step from the store. */
const storedEvents = <Stage>(stages: readonly Stage[]) => [
  ...stages.flatMap((stage) => [{ type: "volume.changed", stage } as const, { type: "write.settled", stage } as const]),
  { type: "call.answered" } as const,
  ...failings.flatMap((failing) => [
    { type: "call.failed", reason: "no", failing } as const,
    { type: "write.failed", reason: "no", failing } as const,
  ]),
  { type: "plugin.served" } as const,
];

test("a volume is created after the store says so, and its object outlives it at the plugin", async (t) => {
  const stages: readonly VolumeStage[] = [
    "new",
    "asked",
    "created",
    "unwanted-used",
    "unwanted-new",
    "unwanted-asked",
    "unwanted-created",
    "gone",
  ];
  await walkChart(t, {
    machine: volumeMachine,
    inputs: stages.map((stage) => ({ volumeId: "v1", stage })),
    events: storedEvents(stages),
    matters: ({ stage }: VolumeContext) => stage,
    mayCome: ({ memory }, event) => !isAnswer(event) || isAnswerTo(memory, event),
    memory: { request: "" },
    check: (memory, step, claim) => {
      const { asked, context, event, from } = step;
      const { stage } = context as VolumeContext;
      const { isDouble, request } = pendingAfter(memory, step, (type) => /^(call|write)/.test(type));
      const isMaybeMade = stage === "asked" || stage === "unwanted-asked";
      claim("V1", !isAsked(asked, "callCreate") || isMaybeMade, "the plugin is asked before the store says so");
      claim(
        "V2",
        !isAsked(asked, "callDelete") || stage === "unwanted-created",
        "a volume is deleted that is wanted or used",
      );
      const isDeleted = event?.type === "call.answered" && memory.request === "callDelete";
      const isNeverMade =
        memory.request === "callCreate" &&
        event?.type === "call.failed" &&
        event.failing === "refused" &&
        stage === "unwanted-asked";
      claim(
        "V2",
        !isAsked(asked, "writeRemoval") || isDeleted || isNeverMade || stage === "unwanted-new",
        "the object is removed although the plugin may have the volume",
      );
      const isFailed = (event?.type === "call.failed" || event?.type === "write.failed") && !isNeverMade;
      claim("V3", !isFailed || isIn(step, "resting"), "a failed step is not tried again");
      const isBegun =
        from === null || isDue(event, "retry") || (event?.type === "plugin.served" && isIn(from, "resting"));
      claim("V3", !(isBegun && isMaybeMade) || isAsked(asked, "callCreate"), "the creation is not repeated");
      claim(
        "V3",
        !(isBegun && stage === "unwanted-created") || isAsked(asked, "callDelete"),
        "the deletion is not repeated",
      );
      claim("V4", !isDouble, "a call is made while another is in progress");
      return { request };
    },
    ends: true,
  });
});

test("a volume is on a node by the plugin's word alone, and leaves it by another call", async (t) => {
  const stages: readonly PublicationStage[] = [
    "blocked",
    "wanted",
    "published",
    "leaving",
    "abandoned",
    "left",
    "gone",
  ];
  await walkChart(t, {
    machine: publicationMachine,
    inputs: stages.map((stage) => ({ volumeId: "v1", nodeId: "n1", stage })),
    events: storedEvents(stages),
    matters: ({ stage }: PublicationContext) => stage,
    mayCome: ({ memory }, event) => !isAnswer(event) || isAnswerTo(memory, event),
    memory: { request: "" },
    check: (memory, step, claim) => {
      const { asked, context, event, from } = step;
      const { stage } = context as PublicationContext;
      const { isDouble, request } = pendingAfter(memory, step, (type) => /^(call|write)/.test(type));
      const isDone = (call: string): boolean => event?.type === "call.answered" && memory.request === call;
      claim("U1", !isAsked(asked, "writePublished") || isDone("callPublish"), "it is recorded before it is attached");
      claim("U1", !isAsked(asked, "writeErasure") || isDone("callUnpublish"), "it is forgotten before it is detached");
      claim("U2", !isIn(step, "gone") || stage === "gone", "it ends although the store still lists the node");
      const isBegun =
        from === null ||
        isDue(event, "retry") ||
        event?.type === "write.settled" ||
        (event?.type === "plugin.served" && isIn(from, "resting"));
      claim(
        "U2",
        !(isBegun && stage === "left") || isAsked(asked, "callUnpublish"),
        "a volume that left the node is not detached",
      );
      claim("U3", !isAsked(asked, "callPublish") || stage === "wanted", "it is attached while another node has it");
      claim("U4", !isDouble, "a call is made while another is in progress");
      return { request };
    },
    ends: true,
  });
});

test("a volume is mounted before a task gets it, and unmounted after the last one", async (t) => {
  const both = [true, false];
  const requests = ["stage", "publish", "unpublish", "unstage", "tell"];
  await walkChart(t, {
    machine: nodeVolumeMachine,
    inputs: both.flatMap((isWanted) => both.map((isUsed) => ({ volumeId: "v1", isWanted, isUsed }))),
    events: [
      { type: "volume.wanted" } as const,
      { type: "volume.unwanted" } as const,
      ...both.map((isUsed) => ({ type: "users.changed", isUsed }) as const),
      { type: "call.answered" } as const,
      ...failings.map((failing) => ({ type: "call.failed", reason: "no", failing }) as const),
      { type: "path.restored" } as const,
    ],
    matters: ({ isUsed, isWanted }: { readonly isUsed: boolean; readonly isWanted: boolean }) => [isUsed, isWanted],
    mayCome: ({ memory, states }, event) =>
      isAnswer(event)
        ? isAnswerTo(memory, event)
        : // A task becomes a user at the moment when the volume is ready for it.
          event.type !== "users.changed" || !event.isUsed || states.includes("ready"),
    memory: { request: "", isMounted: false, isUnmounted: false, isCleared: false },
    check: (memory, step, claim) => {
      const { asked, context, event, from } = step;
      const { isUsed } = context as { readonly isUsed: boolean };
      const { request } = pendingAfter(memory, step, (type) => requests.includes(type));
      const isDone = (call: string): boolean => event?.type === "call.answered" && memory.request === call;
      const isMounted = (memory.isMounted || isDone("publish")) && !isAsked(asked, "unpublish");
      const isUnmounted = (memory.isUnmounted || isDone("unpublish")) && !isAsked(asked, "stage");
      const isCleared = (memory.isCleared || isDone("unstage")) && !isAsked(asked, "stage");
      claim("M1", !isIn(step, "ready") || isMounted, "tasks may start before it is mounted");
      const begins = isIn(step, "ready") && !isIn(from, "ready");
      claim("M1", isAsked(asked, "announce") === begins, "waiting tasks go on before it is ready, or not at all");
      claim("M2", !isAsked(asked, "unpublish") || !isUsed, "it is unmounted under a task");
      claim("M3", !isAsked(asked, "tell") || (isUnmounted && isCleared), "it is reported before it is unmounted");
      claim("M3", !isIn(step, "gone") || isDone("tell"), "it ends before the manager has answered");
      return { request, isMounted, isUnmounted, isCleared };
    },
    ends: true,
  });
});

test("a plugin is used only after it has reported on itself, and is dialled less often the more often it fails", async (t) => {
  const events: readonly CsiPluginEvent[] = [
    { type: "plugin.listed" },
    { type: "plugin.unlisted" },
    { type: "link.opened" },
    { type: "link.lost", reason: "closed" },
    { type: "plugin.identified", facts: noFacts },
  ];
  const attemptsOf = (context: unknown): number => (context as { readonly attempts: number }).attempts;
  await walkChart(t, {
    machine: csiPluginMachine,
    inputs: [{ name: "p" }],
    events,
    matters: (context) => Math.min(attemptsOf(context), 2),
    memory: null,
    check: (_, step, claim) => {
      const { asked, context, event, from } = step;
      const isIdentified = event?.type === "plugin.identified" && isIn(from, "identifying");
      const begins = isIn(step, "serving") && !isIn(from, "serving");
      claim("L1", !begins || isIdentified, "it is called before it has reported on itself");
      claim("L1", isAsked(asked, "announce") === begins, "waiting volumes go on before it serves");
      const before = from === null ? 0 : attemptsOf(from.snapshot.context);
      const isLinked = ["dialling", "identifying", "serving"].some((state) => isIn(from, state));
      const isLost = event?.type === "link.lost" && isLinked;
      const isReset = event?.type === "plugin.unlisted" || (isDue(event, "linkHeld") && isIn(from, "serving"));
      const expected = isReset ? 0 : isLost ? before + 1 : before;
      claim("L2", attemptsOf(context) === expected, "the wait does not follow the failures");
      claim("L2", !isLost || isIn(step, "resting"), "it is dialled again without a wait");
      claim("L2", !isDue(event, "retry") || isAsked(asked, "dial"), "it is not dialled again");
      return null;
    },
  });
});
