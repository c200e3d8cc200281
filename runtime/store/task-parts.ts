/** Shares the parts that tasks of one service or one node have in common: every newly decoded task passes through here. */
import {
  Annotations,
  Endpoint,
  Meta,
  Network,
  NetworkAttachment,
  TaskSpec,
  Version,
  type Task,
  type TaskStatus,
} from "../../proto/gen/messages.ts";
import { SharedMessages, SharedStrings } from "./sharing.ts";

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

export class TaskParts {
  readonly #strings = new SharedStrings();
  readonly #specs = new SharedMessages(TaskSpec);
  readonly #annotations = new SharedMessages(Annotations, isSameAnnotations);
  readonly #versions = new SharedMessages(Version, (a, b) => a.index === b.index);
  readonly #endpoints = new SharedMessages(Endpoint);
  readonly #networks = new SharedMessages(Network);
  readonly #metas = new SharedMessages(Meta, isSameMeta);

  spec(spec: TaskSpec): TaskSpec {
    return this.#specs.shareEqual(spec);
  }

  /** Tasks created together are adjacent in a snapshot, so the last meta usually fits. */
  meta(meta: Meta): Meta {
    return this.#metas.share("", meta);
  }

  /**
   * Replaces parts of a task that is not shared yet; `old` is the stored task, whose parts are shared already. `ownsStatus`:
   * its status is not shared yet.
   */
  share(task: Mutable<Task>, old: Task | undefined, ownsStatus = true): void {
    if (task.serviceId !== old?.serviceId) task.serviceId = this.#strings.share(task.serviceId);
    if (task.nodeId !== old?.nodeId) task.nodeId = this.#strings.share(task.nodeId);
    if (ownsStatus && task.status !== null && task.status !== old?.status) this.shareStatus(task.status);
    if (task.serviceAnnotations !== null && task.serviceAnnotations !== old?.serviceAnnotations) {
      task.serviceAnnotations = this.#annotations.share(task.serviceId, task.serviceAnnotations);
    }
    if (task.specVersion !== null && task.specVersion !== old?.specVersion) {
      task.specVersion = this.#versions.share(task.serviceId, task.specVersion);
    }
    if (task.endpoint !== null && task.endpoint !== old?.endpoint) {
      task.endpoint = this.#endpoints.share(task.serviceId, task.endpoint);
    }
    if (task.networks.length > 0 && task.networks !== old?.networks) {
      task.networks = task.networks.map((attachment) => {
        if (attachment.network === null) return attachment;
        const network = this.#networks.share(attachment.network.id, attachment.network);
        return NetworkAttachment.patch(attachment, { network });
      });
    }
  }

  shareStatus(status: Mutable<TaskStatus>): void {
    status.message = this.#strings.share(status.message);
    if (status.appliedBy !== "") status.appliedBy = this.#strings.share(status.appliedBy);
  }
}

function isSameAnnotations(a: Annotations, b: Annotations): boolean {
  if (a.name !== b.name || a.indices.length > 0 || b.indices.length > 0) return false;
  let labels = 0;
  for (const key in a.labels) {
    if (a.labels[key] !== b.labels[key]) return false;
    labels += 1;
  }
  for (const _ in b.labels) labels -= 1;
  return labels === 0;
}

function isSameMeta(a: Meta, b: Meta): boolean {
  return (
    a.version?.index === b.version?.index &&
    a.createdAt?.seconds === b.createdAt?.seconds &&
    a.createdAt?.nanos === b.createdAt?.nanos &&
    a.updatedAt?.seconds === b.updatedAt?.seconds &&
    a.updatedAt?.nanos === b.updatedAt?.nanos
  );
}
