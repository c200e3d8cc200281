/** Muster's cluster as one of the two between which engines move. */
import { isRunning } from "../../machines/task.ts";
import {
  Annotations,
  ControlService,
  ListTasksRequest_Filters,
  NodeRole,
  NodeSpec,
  NodeSpec_Availability,
  NodeStatus_State,
  RemoveNodeRequest,
  TaskState,
  UpdateNodeRequest,
  type Node,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { UserError } from "../../lib/user-error.ts";
import { joinTokenOf } from "../join-tokens.ts";
import { listNodes, listTasks, retryingConflicts, type ManagerClient } from "../manager-client.ts";
import type { Availability, Cluster } from "./move.ts";

const { methods } = ControlService;

const availabilities: Readonly<Record<Availability, NodeSpec_Availability>> = {
  active: NodeSpec_Availability.ACTIVE,
  pause: NodeSpec_Availability.PAUSE,
  drain: NodeSpec_Availability.DRAIN,
};

function nameOf(availability: NodeSpec_Availability): Availability {
  if (availability === NodeSpec_Availability.DRAIN) return "drain";
  return availability === NodeSpec_Availability.PAUSE ? "pause" : "active";
}

export function ownSide(client: ManagerClient): Cluster {
  const asked = async <Result>(work: Promise<Result>): Promise<Result> => {
    try {
      return await work;
    } catch (error) {
      if (error instanceof RpcError) throw new UserError(error.message, { cause: error });
      throw error;
    }
  };
  const read = async (id: string): Promise<Node | null> =>
    (await asked(listNodes(client))).find((node) => node.id === id) ?? null;
  return {
    name: "this cluster",
    async node(id) {
      const found = await read(id);
      if (found === null) return null;
      const { annotations, availability, desiredRole } = found.spec ?? NodeSpec.create({});
      return {
        isReady: found.status?.state === NodeStatus_State.READY,
        isManager: desiredRole === NodeRole.MANAGER,
        availability: nameOf(availability),
        labels: annotations?.labels ?? {},
      };
    },
    change: (id, { availability, labels }) =>
      asked(
        retryingConflicts(async () => {
          const node = await read(id);
          if (node === null) throw new UserError(`this cluster has no node ${id}`);
          const spec = node.spec ?? NodeSpec.create({});
          const annotations = Annotations.patch(
            spec.annotations ?? Annotations.create({}),
            labels === undefined ? {} : { labels },
          );
          const changed = NodeSpec.patch(spec, {
            annotations,
            ...(availability === undefined ? {} : { availability: availabilities[availability] }),
          });
          const nodeVersion = node.meta?.version ?? null;
          await client.call(methods.UpdateNode, UpdateNodeRequest.create({ nodeId: id, nodeVersion, spec: changed }));
        }),
      ),
    async remove(id) {
      try {
        await client.call(methods.RemoveNode, RemoveNodeRequest.create({ nodeId: id, force: true }));
      } catch (error) {
        if (!(error instanceof RpcError)) throw error;
        if (error.code !== Status.NOT_FOUND) throw new UserError(error.message, { cause: error });
      }
    },
    // Engines become workers here: managers are Muster's own processes.
    async entry() {
      const [token, nodes] = await asked(Promise.all([joinTokenOf(client, "worker"), listNodes(client)]));
      const addresses = nodes.map(({ managerStatus }) => managerStatus?.addr ?? "").filter((addr) => addr !== "");
      return { token, addresses };
    },
    async tasks(nodeId) {
      const filters = ListTasksRequest_Filters.create({ nodeIds: [nodeId] });
      const tasks = await asked(listTasks(client, filters));
      return tasks.filter(({ desiredState }) => desiredState === TaskState.RUNNING).map(isRunning);
    },
  };
}
