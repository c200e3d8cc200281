/** The identity that a login tag names (reference §2.3): a user, a node's agent or a task's agent. */
import type { LoginName } from "../../runtime/ports/json-api.ts";
import type { Store } from "../../runtime/store/store.ts";
import { applicationName, machineId, unitName, unitOfTag } from "./entities/names.ts";

/** Longer tags name nobody. */
const tagMax = 200;
const anonymous = "jujuanonymous";

/** The unit's current task: the last of its attempts. */
function taskOf(store: Store, unit: string): string | null {
  const application = unit.slice(0, unit.lastIndexOf("/"));
  let found: { readonly id: string; readonly version: number } | null = null;
  for (const service of store.all("service")) {
    if (applicationName(service.spec?.annotations?.name ?? "") !== application) continue;
    for (const task of store.tasksByService(service.id)) {
      const version = task.meta?.version?.index ?? 0;
      if (unitName(task, service) === unit && version >= (found?.version ?? 0)) found = { id: task.id, version };
    }
  }
  return found?.id ?? null;
}

/** Null for a tag that names nothing. */
export function loginNameOf(store: Store, tag: string): LoginName | null {
  if (tag.length > tagMax) return null;
  const [kind = "", ...rest] = tag.split("-");
  const name = rest.join("-");
  switch (kind) {
    case "user":
      // Juju's own users are in the domain `local`.
      return name === "" || name === anonymous ? null : { kind: "user", name: name.replace(/@local$/, "") };
    case "machine":
      for (const node of store.all("node"))
        if (machineId(node.id) === name) return { kind: "machine", nodeId: node.id };
      return null;
    case "unit": {
      const unit = unitOfTag(tag);
      const taskId = unit === null ? null : taskOf(store, unit);
      return taskId === null ? null : { kind: "unit", taskId };
    }
    default:
      return null;
  }
}
