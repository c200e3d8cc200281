/** Control's node methods. */
import { isDemoted } from "../../machines/manager/role.ts";
import { withManagerStatus } from "../../machines/manager/status.ts";
import { matchesNode, unknownNodeFilter } from "../../machines/list-filters.ts";
import { blacklisting, checkNodeRemoval, checkNodeUpdate, type Managership } from "../../machines/validation/node.ts";
import { invalid } from "../../machines/refusal.ts";
import { moved } from "../../machines/task-moves.ts";
import { observedState } from "../../machines/task.ts";
import { mayAdvance } from "../../machines/task.machine.ts";
import { timestampOf } from "../../proto/time.ts";
import {
  Cluster,
  GetNodeResponse,
  ListNodesResponse,
  Node,
  NodeRole,
  type Operation,
  RemoveNodeResponse,
  TaskState,
  TaskStatus,
  UpdateNodeResponse,
  type BlacklistedCertificate,
  type Task,
} from "../../proto/gen/messages.ts";
import { reportKind } from "../../machines/policy/objects.ts";
import type { Environment } from "../environment.ts";
import { demand, demandGiven, notFound, rejection } from "./answer.ts";
import { candidates } from "./candidates.ts";
import type { ControlHandlers, ControlSources } from "./handlers.ts";
import { atVersion, commit, removal, replacement, restingOn, stored, transact } from "./write.ts";

type NodeHandlers = Pick<ControlHandlers, "GetNode" | "ListNodes" | "UpdateNode" | "RemoveNode">;

/** How much longer expired blacklist entries are kept, for clocks that differ (SwarmKit's value). */
const blacklistKeptMs = 3_600_000;

export function nodeHandlers(env: Environment, sources: ControlSources): NodeHandlers {
  const { store } = env;

  function shown(node: Node): Node {
    return withManagerStatus(node, store.get("manager", node.id), sources.leaderId());
  }

  function nodeOf(id: string): Node {
    demandGiven(id);
    const node = store.get("node", id);
    if (node === undefined) throw notFound("node", id);
    return node;
  }

  /** Managers being demoted do not count as others. */
  function managership(id: string): Managership & { readonly successor: Node | undefined } {
    let others = 0;
    let othersAlive = 0;
    let successor: Node | undefined;
    for (const other of store.all("manager")) {
      const node = store.get("node", other.id);
      if (other.id === id || (node !== undefined && isDemoted(node))) continue;
      others += 1;
      if (!other.alive) continue;
      othersAlive += 1;
      successor ??= node;
    }
    return { manager: store.get("manager", id), others, othersAlive, successor };
  }

  /** The cluster with the node's certificate blacklisted and obsolete entries dropped. */
  function blacklisted(cluster: Cluster, node: Node): Cluster {
    const now = env.clock.now();
    const pem = new TextDecoder().decode(node.certificate?.certificate ?? new Uint8Array());
    const read = sources.authority.describeCertificate(pem);
    const kept: Record<string, BlacklistedCertificate> = {};
    for (const [name, entry] of Object.entries(cluster.blacklistedCertificates)) {
      if ((entry.expiry?.seconds ?? 0) * 1_000 + blacklistKeptMs > now) kept[name] = entry;
    }
    // A node that never got its certificate is refused for the longest lifetime that one could have had.
    const longest = (cluster.spec?.caConfig?.nodeCertExpiry?.seconds ?? 0) * 1_000;
    kept[node.id] = blacklisting(read.kind === "certificate" ? read.notAfterMs : now + longest);
    return Cluster.patch(cluster, { blacklistedCertificates: kept });
  }

  function orphaned(task: Task): Operation {
    const status = TaskStatus.patch(task.status ?? TaskStatus.create({}), {
      state: TaskState.ORPHANED,
      message: "Task belonged to a node that has been deleted",
      timestamp: timestampOf(env.clock.now()),
    });
    return moved(task, "manager", status);
  }

  return {
    GetNode({ nodeId }) {
      return GetNodeResponse.create({ node: shown(nodeOf(nodeId)) });
    },

    ListNodes({ filters }) {
      const unknown = filters === null ? null : unknownNodeFilter(filters);
      if (unknown !== null) throw rejection(invalid(unknown));
      const nodes: Node[] = [];
      for (const node of candidates(store, "node", filters))
        if (filters === null || matchesNode(filters, node)) nodes.push(shown(node));
      return ListNodesResponse.create({ nodes });
    },

    async UpdateNode({ nodeId, nodeVersion, spec }, call) {
      demandGiven(nodeId, nodeVersion, spec);
      const before = nodeOf(nodeId);
      if (nodeVersion === null || spec === null) throw rejection(invalid("invalid argument"));
      const managed = managership(nodeId);
      demand(checkNodeUpdate(before, spec, managed));
      const role = spec.desiredRole;
      // Only the leader changes a manager to a worker, after its process has exited (machines/manager/demotion.machine.ts, D2).
      const isEnding = role === NodeRole.WORKER && before.role === NodeRole.MANAGER;
      const after = Node.patch(before, isEnding ? { spec } : { spec, role });
      const update = replacement("node", atVersion("node", after, nodeVersion));
      // Of two managers demoted concurrently, one stays: each write depends on another manager that stays.
      const isDemotion = role === NodeRole.WORKER && !isDemoted(before);
      const { successor } = managed;
      await commit(env, call, isDemotion && successor !== undefined ? restingOn(update, "node", successor) : update);
      return UpdateNodeResponse.create({ node: shown(stored(env, "node", after)) });
    },

    async RemoveNode({ nodeId, force }, call) {
      demandGiven(nodeId);
      await transact(env, call, () => {
        const node = nodeOf(nodeId);
        const managed = managership(nodeId);
        const { identity } = call.peer;
        demand(checkNodeRemoval(node, force, managed, identity !== null && identity.nodeId === nodeId));
        const operations: Operation[] = [];
        for (const cluster of store.all("cluster")) operations.push(replacement("cluster", blacklisted(cluster, node)));
        for (const task of store.tasksByNode(nodeId)) {
          if (mayAdvance(observedState(task), TaskState.ORPHANED, "manager")) operations.push(orphaned(task));
        }
        if (store.get("session", nodeId) !== undefined) operations.push(removal("session", nodeId));
        // Its dataplane report has the node's id; a resource of another kind never has.
        if (store.get("resource", nodeId)?.kind === reportKind) operations.push(removal("resource", nodeId));
        if (managed.manager !== undefined) operations.push(removal("manager", nodeId));
        operations.push(removal("node", nodeId));
        return operations;
      });
      return RemoveNodeResponse.create({});
    },
  };
}
