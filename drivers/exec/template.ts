/** The templates that SwarmKit's workers expand: a small part of Go's template language, and nothing that can run code. */
import type { DriverTask } from "../../actors/agent-ports.ts";

export type Expansion =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "unknown"; readonly expression: string };

const placeholder = /\{\{-?\s*(.*?)\s*-?\}\}/gs;
const labelByIndex = /^index\s+\.Service\.Labels\s+"((?:[^"\\]|\\.)*)"$/;

/** Replaces each `{{…}}`; a label that the service lacks is empty, an expression that is none of ours is an error. */
export function expand(text: string, task: DriverTask): Expansion {
  let unknown: string | null = null;
  const expanded = text.replaceAll(placeholder, (_, expression: string) => {
    const value = valueOf(expression, task);
    if (value === null) unknown ??= expression;
    return value ?? "";
  });
  return unknown === null ? { kind: "text", text: expanded } : { kind: "unknown", expression: unknown };
}

function valueOf(expression: string, task: DriverTask): string | null {
  switch (expression) {
    case ".Service.ID":
      return task.serviceId;
    case ".Service.Name":
      return task.serviceName;
    case ".Node.ID":
      return task.nodeId;
    case ".Node.Hostname":
      return task.nodeHostname;
    case ".Node.Platform.Architecture":
      return task.nodePlatform.architecture;
    case ".Node.Platform.OS":
      return task.nodePlatform.os;
    case ".Task.ID":
      return task.id;
    case ".Task.Name":
      return task.name;
    case ".Task.Slot":
      // A global service's task has no slot; its node stands for it, as in SwarmKit. The first slot of a job is told by its name.
      if (task.slot !== 0 || task.name === `${task.serviceName}.0.${task.id}`) return String(task.slot);
      return task.nodeId;
  }
  const label = expression.startsWith(".Service.Labels.")
    ? expression.slice(".Service.Labels.".length)
    : labelByIndex.exec(expression)?.[1]?.replaceAll(/\\(.)/g, "$1");
  return label === undefined || label === "" ? null : (task.serviceLabels[label] ?? "");
}
