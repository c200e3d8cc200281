/**
 * Runs a rollout's transcript: a leader's whole orchestration over a real replica, with a service `web` on nodes that behave
 * like agents. Shows the rollout's chart (without looks that change nothing), the service's update status, and when tasks are
 * created, told to stop, run and end; `v1` is the version of a task's spec. Commands:
 *
 *   start FIELDS              a running service: `replicas=4 parallelism=1 order=start-first delay=10s monitor=5s ratio=0.5`,
 *                             `action=rollback`, `restart=none`, `deadline=1m`, `rollbackDelay=10s`
 *   update N FIELDS           to the version N; its tasks fail in the slots of `bad=1,2`
 *   operator pause            also `resume`, `step`, `abort`
 *   remove                    the service is removed
 *   forget                    the service has no previous spec any longer
 *   ledger taken              the rollout's next write is refused, because a port is taken; `ledger away`: not written
 *   fail SLOT                 the slot's running task fails
 *   nodes stuck               no task reaches its next state; `nodes alive`
 *   leader changes            another leader takes over with only the store
 *   advance TIME
 */
import type { InspectionEvent } from "xstate";
import {
  Operation,
  Origin,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  TaskState,
  UpdateStatus_UpdateState,
  Duration,
  Service,
  StoreObject,
  type Task,
  type UpdateConfig,
} from "../../proto/gen/messages.ts";
import { assert } from "../../lib/assert.ts";
import { deadlineLabel } from "../../machines/orchestration/rollout/settings.ts";
import { ErrorCode } from "../../runtime/error-codes.ts";
import type { ObjectChange, ProposeOutcome } from "../../runtime/store/store.ts";
import { ABORT, act, forced, PAUSE, RESUME, ROLLBACK, START_FIRST, started, STEP, wanted } from "./rollout-cluster.ts";
import { ActorStory } from "./transcript-actors.ts";
import { msOf, type Command, type Fields, type Script } from "./transcript.ts";
import { stateNames } from "../../machines/task.ts";

const statusNames = new Map<number, string>(
  Object.entries(UpdateStatus_UpdateState).map(([name, number]) => [number, name]),
);
/** The chart gathers changes, and counts again after each and at times. */
const detours = new Set(["slots.touched", "round.due", "nextLook"]);
const operatorActions = new Map([
  ["pause", PAUSE],
  ["resume", RESUME],
  ["step", STEP],
  ["abort", ABORT],
]);

/** `see`: called with each inspection of an actor, besides the transcript. */
export function rolloutScript(see?: (event: InspectionEvent) => void): Script {
  let world: Awaited<ReturnType<typeof startWorld>> | null = null;
  return async (command) => {
    if (command.name === "start") world = await startWorld(command.fields, see);
    assert(world !== null, "a transcript begins with start");
    if (command.name !== "start") await world.run(command);
    const lines = await world.story.take(command.name === "advance" ? (msOf(command.words[0] ?? "") ?? NaN) : 0);
    return lines.map((line) => line.replaceAll(/task [0-9a-z]{25}/g, "task T"));
  };
}

const durationOf = (ms: number): Duration =>
  Duration.create({ seconds: Math.floor(ms / 1_000), nanos: (ms % 1_000) * 1e6 });

async function startWorld(fields: Fields, see: ((event: InspectionEvent) => void) | undefined) {
  const { replicas = 4, parallelism = 1, order, delay = 0, monitor = 5_000, ratio = 0, action, restart } = fields;
  const { deadline, rollbackDelay = 0 } = fields;
  const update: Partial<UpdateConfig> = {
    parallelism: Number(parallelism),
    delay: durationOf(Number(delay)),
    monitor: durationOf(Number(monitor)),
    maxFailureRatio: Number(ratio),
    ...(order === "start-first" ? { order: START_FIRST } : {}),
    ...(action === "rollback" ? { failureAction: ROLLBACK } : {}),
  };
  const never = RestartPolicy.create({ condition: RestartPolicy_RestartCondition.NONE });
  const cluster = await started({
    replicas: Number(replicas),
    update,
    rollback: { parallelism: 1, delay: durationOf(Number(rollbackDelay)), monitor: durationOf(Number(monitor)) },
    ...(deadline === undefined ? {} : { labels: { [deadlineLabel]: `${Number(deadline)}ms` } }),
    ...(restart === "none" ? { task: { restart: never } } : {}),
  });
  const bad = new Map<number, string>();
  cluster.outcome = (task) => {
    const slots = bad.get(versionOf(task)) ?? "";
    return slots.split(",").includes(String(task.slot)) ? TaskState.FAILED : undefined;
  };
  cluster.store.watch(({ changes }) => {
    for (const change of changes) for (const line of changeLines(change)) story.note(line);
  });
  let answer: ProposeOutcome | null = null;
  const { proposer } = cluster.env;
  const { propose } = proposer;
  proposer.propose = (proposal) => {
    const given = answer;
    if (given === null || proposal.origin !== Origin.ORIGIN_ROLLOUT) return propose(proposal);
    answer = null;
    return Promise.resolve(given);
  };
  // The new orchestration watches the store after this transcript, so a change precedes its consequences here.
  cluster.changeLeader();
  const { clock, env } = cluster;
  const story: ActorStory = new ActorStory({
    host: env.host,
    clock,
    prefix: "rollout/",
    detours,
    ...(see === undefined ? {} : { see }),
  });

  async function run({ name, words: [word = ""], fields: more }: Command): Promise<void> {
    switch (name) {
      case "update":
        bad.set(Number(word), String(more["bad"] ?? ""));
        await cluster.updateService("web", forced(Number(word)));
        break;
      case "operator": {
        const request = operatorActions.get(word);
        assert(request !== undefined, `${word} is an action of operators`);
        await act(cluster, request);
        break;
      }
      case "fail": {
        const task = wanted(cluster).find(({ slot }) => slot === Number(word));
        assert(task !== undefined, `slot ${word} has a task`);
        await cluster.report(task, TaskState.FAILED);
        break;
      }
      case "remove":
        await cluster.removeService("web");
        break;
      case "forget": {
        const service = Service.patch(cluster.store.get("service", "web")!, { previousSpec: null });
        await cluster.propose(Operation.create({ update: StoreObject.create({ service }) }));
        break;
      }
      case "ledger":
        answer =
          word === "taken"
            ? { kind: "refused", code: ErrorCode.portTaken, message: "port '80' is already in use" }
            : { kind: "unavailable", maybe: false, message: "no leader" };
        break;
      case "nodes":
        if (word === "stuck") cluster.alive.clear();
        else cluster.alive.add("n1");
        break;
      case "leader":
        cluster.changeLeader();
        story.follow();
        break;
      default:
        assert(name === "advance", `${name} is a command of the rollout's transcripts`);
    }
  }

  return { story, run };
}

function versionOf(task: Task): number {
  return task.spec?.forceUpdate ?? 0;
}

/** Of the changes of a task only its creation, the wish to stop it, and its states from RUNNING on. */
function changeLines(change: ObjectChange): readonly string[] {
  if (change.table === "service") {
    const [before, status] = [change.old?.updateStatus ?? null, change.object.updateStatus];
    if (status === null || (before?.state === status.state && before.message === status.message)) return [];
    return [`service: ${statusNames.get(status.state)}: ${status.message}`];
  }
  if (change.table !== "task") return [];
  const { object: task, old, action } = change;
  const told = `slot ${task.slot} v${versionOf(task)}`;
  if (action === "remove") return [];
  if (old === null) return [`${told}: created, to be ${stateNames.get(task.desiredState)}`];
  const lines: string[] = [];
  if (task.desiredState !== old.desiredState) lines.push(`${told}: to be ${stateNames.get(task.desiredState)}`);
  const state = task.status?.state ?? 0;
  if (state !== old.status?.state && state >= TaskState.RUNNING) lines.push(`${told}: ${stateNames.get(state)}`);
  return lines;
}
