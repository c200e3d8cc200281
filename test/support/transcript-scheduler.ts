/**
 * Runs a scheduler's transcript: the real scheduler over a real replica, whose nodes and tasks are commands. Commands:
 *
 *   start
 *   node ID FIELDS             READY with 4 CPUs; `cpus=N zone=LABEL state=down availability=drain`; again to change it
 *   tasks SERVICE N FIELDS     PENDING tasks SERVICE.1 to SERVICE.N, or from `from=M` on; `cpus=N` (reserved),
 *                              `constraint=…`, `spread=…`, `node=ID`
 *   task ID failed             also `running` or `removed`
 *   leader gone                nobody accepts proposals; `leader slow`: answers wait until `leader back`
 *   explain ID                 the reasons for which the task waits
 *   advance TIME
 */
import { startScheduler, type Scheduler } from "../../actors/orchestration/scheduler.ts";
import {
  NodeSpec_Availability,
  NodeStatus_State,
  Placement,
  PlacementPreference,
  ResourceRequirements,
  Resources,
  SpreadOver,
  TaskState,
  type Task,
  type TaskPatch,
} from "../../proto/gen/messages.ts";
import { assert } from "../../lib/assert.ts";
import { testManager } from "./manager.ts";
import { containerSpec, inState, pendingTask, readyNode } from "./scheduling.ts";
import { ActorStory, worldScript } from "./transcript-actors.ts";
import { type Command, type Fields, type Script } from "./transcript.ts";
import { stateNames } from "../../machines/task.ts";

function startWorld() {
  const manager = testManager("m1");
  const { env, clock, store, seed } = manager;
  const { proposer } = env;
  let held: PromiseWithResolvers<void> | null = null;
  (env as { proposer: typeof proposer }).proposer = {
    propose: (proposal) => {
      for (const { task } of proposal.operations) if (task !== null) story.note(`propose: ${patchText(task)}`);
      return held === null ? proposer.propose(proposal) : held.promise.then(() => proposer.propose(proposal));
    },
  };
  const scheduler: Scheduler = startScheduler(env);
  const story: ActorStory = new ActorStory({ host: env.host, clock, prefix: "scheduler/" });

  const taskOf = (id: string): Task => {
    const task = store.get("task", id);
    assert(task !== undefined, `task ${id} exists`);
    return task;
  };

  function run({ name, words: [word = "", more = ""], fields }: Command): void {
    switch (name) {
      case "node":
        seed("node", nodeOf(word, fields));
        break;
      case "tasks":
        seed("task", ...tasksOf(word, Number(more), fields));
        break;
      case "task":
        if (more === "removed") manager.drop("task", word);
        else seed("task", inState(taskOf(word), more === "failed" ? TaskState.FAILED : TaskState.RUNNING));
        break;
      case "leader":
        manager.leaderless = word === "gone";
        held?.resolve();
        held = word === "slow" ? Promise.withResolvers() : null;
        break;
      case "explain":
        for (const { waitingFor, tried } of scheduler.explain(taskOf(word))) {
          story.note(`${word} waits for ${waitingFor}`);
          for (const reason of tried) story.note(`tried ${reason}`);
        }
        break;
      default:
        assert(name === "advance", `${name} is a command of the scheduler's transcripts`);
    }
  }

  return { story, run };
}

function nodeOf(id: string, { cpus = 4, zone = "", state = "ready", availability = "active" }: Fields) {
  return readyNode(id, {
    cpus: Number(cpus),
    ...(zone === "" ? {} : { labels: { zone: String(zone) } }),
    ...(state === "down" ? { state: NodeStatus_State.DOWN } : {}),
    ...(availability === "drain" ? { availability: NodeSpec_Availability.DRAIN } : {}),
  });
}

function tasksOf(serviceId: string, count: number, fields: Fields): readonly Task[] {
  const { cpus = 0, constraint = "", spread = "", node = "", from = 1 } = fields;
  const spec = containerSpec({
    resources: ResourceRequirements.create({ reservations: Resources.create({ nanoCpus: Number(cpus) * 1e9 }) }),
    placement: Placement.create({
      constraints: constraint === "" ? [] : [String(constraint)],
      preferences:
        spread === ""
          ? []
          : [PlacementPreference.create({ spread: SpreadOver.create({ spreadDescriptor: String(spread) }) })],
    }),
  });
  return Array.from({ length: count }, (_, at) =>
    pendingTask(`${serviceId}.${Number(from) + at}`, {
      serviceId,
      slot: node === "" ? Number(from) + at : 0,
      nodeId: String(node),
      spec,
    }),
  );
}

/** Such as `web.1 ASSIGNED to n1: scheduler assigned task to node`. */
function patchText({ id, nodeId, status }: TaskPatch): string {
  const { state = 0, message = "", err = "" } = status ?? {};
  return `${id} ${stateNames.get(state)}${nodeId === "" ? "" : ` to ${nodeId}`}: ${err === "" ? message : err}`;
}

export const schedulerScript = (): Script => worldScript(startWorld);
