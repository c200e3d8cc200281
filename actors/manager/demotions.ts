/**
 * The leader's part of demotions: one chart for each manager being demoted. Only the leader changes a manager to a worker, with
 * writes of its own term, so a manager being demoted cannot be leading at that time. D2
 */
import { demotionMachine, type DemotionEvent } from "../../machines/manager/demotion.machine.ts";
import { isDemoted, isManagersNode } from "../../machines/manager/role.ts";
import { Node, NodeRole, NodeStatus, NodeStatus_State } from "../../proto/gen/messages.ts";
import type { EffectsOf, HostedActor } from "../../runtime/host.ts";
import { commit, removal, replacement } from "../control/write.ts";
import type { Environment, Running } from "../environment.ts";
import { sentence } from "../sentence.ts";

const message = "its manager process was demoted and has exited";

/** `stepDown` ends this leader's term. */
export function startDemotions(env: Environment, stepDown: () => void): Running {
  const { store, host } = env;
  const live = new Map<string, HostedActor<typeof demotionMachine>>();
  let stopped = false;

  const effects: EffectsOf<typeof demotionMachine> = {
    recordDemotion: ({ nodeId }) => env.clock.soon(() => void record(nodeId)),
  };

  function tell(nodeId: string, event: DemotionEvent): void {
    const hosted = live.get(nodeId);
    if (hosted === undefined || stopped) return;
    hosted.send(event);
    if (hosted.snapshot.status !== "done") return;
    live.delete(nodeId);
    hosted.stop();
  }

  // This manager is running, whatever its record says: another may have declared it dead before it led. D2
  const isGone = (id: string): boolean => id !== env.managerId && store.get("manager", id)?.alive !== true;
  /** Demoted, but still recorded as a manager in the log. */
  const isOnItsWay = (node: Node): boolean =>
    isDemoted(node) && (node.role === NodeRole.MANAGER || store.get("manager", node.id) !== undefined);

  function look(nodeId: string): void {
    const node = store.get("node", nodeId);
    if (node === undefined || !isOnItsWay(node)) return tell(nodeId, { type: "demotion.withdrawn" });
    if (live.has(nodeId)) {
      if (isGone(nodeId)) tell(nodeId, { type: "manager.gone" });
      return;
    }
    live.set(
      nodeId,
      host.start(demotionMachine, `demotion/${nodeId}`, { nodeId, isGone: isGone(nodeId) }, { effects }),
    );
  }

  async function record(nodeId: string): Promise<void> {
    const node = store.get("node", nodeId);
    if (stopped || node === undefined || !isOnItsWay(node)) return;
    // D2: it has not exited, and the next leader does not wait for that again.
    if (nodeId === env.managerId) return stepDown();
    const worker = Node.patch(node, { role: NodeRole.WORKER });
    // No agent reports the state of a manager's node. A manager that is promoted and started reports READY itself.
    const status = NodeStatus.create({ state: NodeStatus_State.DOWN, message, addr: node.status?.addr ?? "" });
    const operations = [replacement("node", isManagersNode(node) ? Node.patch(worker, { status }) : worker)];
    if (store.get("manager", nodeId) !== undefined) operations.push(removal("manager", nodeId));
    try {
      // Conditional on the version just read: a manager promoted meanwhile stays one.
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
