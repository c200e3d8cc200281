/**
 * Containers outside of services that attach to a cluster network: each is represented by a task on its node (worker
 * protocol §4.10).
 */
import {
  NetworkAttachmentConfig,
  NetworkAttachmentSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  type Network,
  type Timestamp,
} from "../../proto/gen/messages.ts";
import { refuse, type Refusal } from "../refusal.ts";

/** `target`: the network's id or name in the node's request. */
export function checkAttach(network: Network | undefined, target: string): Refusal | null {
  if (network === undefined) return refuse("not-found", `network ${target} not found`);
  if (network.spec?.attachable === true) return null;
  return refuse("permission-denied", `network ${target} not manually attachable`);
}

export function checkDetach(task: Task | undefined, id: string, nodeId: string): Refusal | null {
  if (task === undefined || task.spec?.attachment == null) return refuse("not-found", `attachment ${id} not found`);
  if (task.nodeId === nodeId) return null;
  return refuse("permission-denied", `attachment ${id} doesn't belong to this node`);
}

interface AttachmentFacts {
  readonly id: string;
  readonly nodeId: string;
  readonly containerId: string;
  readonly networkId: string;
  /** Requested addresses; empty: any. */
  readonly addresses: readonly string[];
  readonly now: Timestamp;
}

export function attachmentTask({ id, nodeId, containerId, networkId, addresses, now }: AttachmentFacts): Task {
  return Task.create({
    id,
    nodeId,
    spec: TaskSpec.create({
      attachment: NetworkAttachmentSpec.create({ containerId }),
      networks: [NetworkAttachmentConfig.create({ target: networkId, addresses })],
    }),
    status: TaskStatus.create({ state: TaskState.NEW, message: "created", timestamp: now }),
    desiredState: TaskState.RUNNING,
  });
}
