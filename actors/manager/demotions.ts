/** The leader's part of demoting managers: a chart for each that is on its way. */
import { demotionMachine, type DemotionEvent } from "../../machines/manager/demotion.ts";
import { isDemoted } from "../../machines/manager/manager-role.ts";
import { Node, NodeRole, NodeStatus, NodeStatus_State } from "../../proto/gen/messages.ts";
import type { HostedActor } from "../../runtime/host.ts";
import { commit, removal, replacement } from "../control/write.ts";
import type { Environment, Running } from "../environment.ts";
import { sentence } from "../sentence.ts";

const message = "its manager process was demoted and has ended";

export function startDemotions(env: Environment): Running {
  const { store, host } = env;
  const live = new Map<string, HostedActor<typeof demotionMachine>>();
  let stopped = false;

  const machine = demotionMachine.provide({
    actions: { recordDemotion: (_, { nodeId }) => env.clock.soon(() => void record(nodeId)) },
  });

  function tell(nodeId: string, event: DemotionEvent): void {
    const hosted = live.get(nodeId);
    if (hosted === undefined || stopped) return;
    hosted.actor.send(event);
    if (hosted.actor.getSnapshot().status !== "done") return;
    live.delete(nodeId);
    hosted.stop();
  }

  const isAlive = (id: string): boolean => store.get("manager", id)?.alive === true;
  /** Demoted, and still a manager in the log in one way or another. */
  const isOnItsWay = (node: Node): boolean =>
    isDemoted(node) && (node.role === NodeRole.MANAGER || store.get("manager", node.id) !== undefined);

  function look(nodeId: string): void {
    const node = store.get("node", nodeId);
    if (node === undefined || !isOnItsWay(node)) return tell(nodeId, { type: "demotion.withdrawn" });
    if (live.has(nodeId)) {
      if (!isAlive(nodeId)) tell(nodeId, { type: "manager.gone" });
      return;
    }
    live.set(nodeId, host.start(machine, `demotion/${nodeId}`, { nodeId, isGone: !isAlive(nodeId) }));
  }

  async function record(nodeId: string): Promise<void> {
    const node = store.get("node", nodeId);
    if (stopped || node === undefined || !isOnItsWay(node)) return;
    // Nobody else speaks for the node of a manager process. One that is promoted and started says itself that it is READY.
    const status = NodeStatus.create({ state: NodeStatus_State.DOWN, message, addr: node.status?.addr ?? "" });
    const operations = [replacement("node", Node.patch(node, { role: NodeRole.WORKER, status }))];
    if (store.get("manager", nodeId) !== undefined) operations.push(removal("manager", nodeId));
    try {
      // Compared with the version just read: who is promoted meanwhile stays a manager.
      await commit(env, { traceparent: "" }, ...operations);
      tell(nodeId, { type: "demotion.recorded" });
    } catch (error) {
      tell(nodeId, { type: "write.failed", reason: sentence(error) });
    }
  }

  for (const node of store.all("node")) look(node.id);
  const watching = store.watch(({ changes }) => {
    for (const change of changes) if (change.table === "node" || change.table === "manager") look(change.object.id);
  });

  return {
    stop() {
      if (stopped) return;
      stopped = true;
      watching.unsubscribe();
      for (const hosted of live.values()) hosted.stop();
      live.clear();
    },
  };
}
