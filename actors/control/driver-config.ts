/**
 * Checks whether a driver plugin could read a service's driver configuration, as far as nodes have reported the driver's
 * schema. A service is refused only when every reported schema refuses it: the scheduler decides which version of the driver a
 * task meets.
 */
import { schemaLabel } from "../../machines/driver/labels.ts";
import { driverRuntimeOf } from "../../machines/driver/spec.ts";
import { invalid, type Refusal } from "../../machines/refusal.ts";
import { isSameMessage } from "../../machines/same-message.ts";
import type { Node, ServiceSpec, TaskSpec } from "../../proto/gen/messages.ts";
import { Spec } from "../../proto/gen/nomad.ts";
import { encodeConfig, environmentScope, problemText, type ConfigInput } from "../../lib/hclspec/index.ts";

/** Variables that a node's agent sets in every task's environment (linux/task-home/), and the node's attributes. */
const known = [
  ..."ALLOC_DIR TASK_DIR SECRETS_DIR ALLOC_ID SHORT_ALLOC_ID ALLOC_NAME ALLOC_INDEX TASK_NAME GROUP_NAME JOB_ID JOB_NAME"
    .split(" ")
    .map((name) => `NOMAD_${name}`),
  ..."NOMAD_NAMESPACE NOMAD_REGION NOMAD_MEMORY_LIMIT TRACEPARENT PATH HOME LANG".split(" "),
  ..."MUSTER_SECRETS MUSTER_CONFIGS MUSTER_VOLUMES".split(" "),
  ..."node.unique.id node.unique.name attr.cpu.arch attr.kernel.name".split(" "),
];

/** Placeholder for a value that only the node knows: it is valid as text, number and flag. */
const unknownValue = "0";

/** Variables with a task's generic resources: one for each kind that its service reserves. */
function resourceVariables(task: TaskSpec | null): readonly string[] {
  return (task?.resources?.reservations?.generic ?? []).map(
    ({ discreteResourceSpec: counted, namedResourceSpec: named }) =>
      `DOCKER_RESOURCE_${(named ?? counted)?.kind.toUpperCase()}`,
  );
}

export function checkDriverConfig(
  spec: ServiceSpec,
  before: ServiceSpec | null,
  nodes: () => Iterable<Node>,
): Refusal | null {
  const runtime = driverRuntimeOf(spec.task);
  if (runtime === null) return null;
  if (before !== null && isSameMessage(spec.task?.generic, before.task?.generic)) return null;
  let config: ConfigInput;
  try {
    config = JSON.parse(runtime.spec.config || "{}") as ConfigInput;
  } catch {
    return null; // refused before, with its own message
  }
  const names = [
    ...known,
    ...runtime.spec.env.map((entry) => entry.slice(0, Math.max(0, entry.indexOf("=")))),
    ...resourceVariables(spec.task),
  ];
  const scope = environmentScope(Object.fromEntries(names.map((name) => [name, unknownValue])));
  // Nodes with the same driver version report the same text: each text is checked once.
  const seen = new Set<string>();
  let refusal: Refusal | null = null;
  for (const { description, id } of nodes()) {
    const schema = schemaLabel(description?.engine?.labels ?? {}, runtime.kind);
    if (schema === null || seen.has(schema.text)) continue;
    seen.add(schema.text);
    const problems = problemsOf(schema.bytes, config, scope);
    if (problems === "") return null;
    const name = description?.hostname || id;
    refusal ??= invalid(`driver ${runtime.kind} of node ${name} cannot read its configuration: ${problems}`);
  }
  return refusal;
}

/** Empty when the configuration is valid, or the schema cannot be decoded. */
function problemsOf(schema: Uint8Array, config: ConfigInput, scope: ReturnType<typeof environmentScope>): string {
  let spec: Spec;
  try {
    spec = Spec.decode(schema);
  } catch {
    return "";
  }
  const outcome = encodeConfig(spec, config, scope);
  return outcome.kind === "invalid" ? outcome.problems.map(problemText).join("; ") : "";
}
