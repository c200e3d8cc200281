// Which driver configurations a manager rejects: those that the node could not read.
import test from "ava";
import { checkDriverConfig } from "../../actors/control/driver-config.ts";
import { objectSpec, text as textField } from "../../edges/plugin/server/fields.ts";
import { driverLabels } from "../../machines/driver/labels.ts";
import { environmentOf } from "../../linux/task-home/environment.ts";
import {
  Any,
  DiscreteGenericResource,
  DriverSpec,
  EngineDescription,
  GenericResource,
  GenericRuntimeSpec,
  Node,
  NodeDescription,
  ResourceRequirements,
  Resources,
  ServiceSpec,
  TaskSpec,
} from "../../proto/gen/messages.ts";
import { Spec } from "../../proto/gen/nomad.ts";
import { driverTask } from "../support/driver-task.ts";

const gpu = GenericResource.create({ discreteResourceSpec: DiscreteGenericResource.create({ kind: "gpu", value: 2 }) });

function refusalOf(text: string): string | null {
  const schema = Spec.encode(objectSpec({ command: textField() }));
  const labels = driverLabels("java", { health: "healthy", reason: "", version: "1", attributes: [], schema });
  const node = Node.create({
    id: "node1",
    description: NodeDescription.create({ hostname: "one", engine: EngineDescription.create({ labels }) }),
  });
  const spec = DriverSpec.create({ config: JSON.stringify({ command: text }), env: ["OWN=1"] });
  const payload = Any.create({ type_url: "type.muster.dev/muster.v1.DriverSpec", value: DriverSpec.encode(spec) });
  const task = TaskSpec.create({
    generic: GenericRuntimeSpec.create({ kind: "java", payload }),
    resources: ResourceRequirements.create({ reservations: Resources.create({ generic: [gpu] }) }),
  });
  const refusal = checkDriverConfig(ServiceSpec.create({ task }), null, () => [node]);
  return refusal === null ? null : JSON.stringify(refusal);
}

test("a driver's configuration may name every variable that the node gives the task, and no other", (t) => {
  const task = driverTask(
    "task1",
    {},
    {
      traceparent: "00-1-2-00",
      genericResources: [gpu],
      resources: { nanoCpus: 0, nanoCpusLimit: 0, memoryBytes: 2 ** 20, memoryLimitBytes: 0 },
    },
  );
  const outcome = environmentOf(task, DriverSpec.create({ env: ["OWN=1"] }), {
    agent: { PATH: "/bin", HOME: "/", LANG: "C" },
    name: "web",
    isImage: false,
    isBare: false,
    directories: { alloc: "/alloc", local: "/local", secrets: "/secrets", configs: "/configs", volumes: "/volumes" },
  });
  const names = outcome.kind === "env" ? Object.keys(outcome.env) : [];
  t.true(names.includes("MUSTER_CONFIGS") && names.includes("OWN") && names.includes("DOCKER_RESOURCE_GPU"));
  for (const name of names) t.is(refusalOf(`\${${name}}`), null, name);
  t.regex(refusalOf("${MUSTER_NOTHING}") ?? "", /there is no variable named \W*MUSTER_NOTHING/);
  t.regex(refusalOf("${DOCKER_RESOURCE_SSD}") ?? "", /there is no variable named \W*DOCKER_RESOURCE_SSD/);
});
