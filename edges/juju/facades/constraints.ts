/**
 * Translates Juju's constraints to a service spec: `cores` and `mem` become reservations, `arch` and `tags` placement
 * constraints (`disk=ssd` requires the node label, `^disk=ssd` excludes it). Other constraints of the spec are kept.
 */
import { Placement, Resources, ResourceRequirements, ServiceSpec, TaskSpec } from "../../../proto/gen/messages.ts";
import { nodeArchitecture } from "../entities/architecture.ts";
import type { Params } from "../params.ts";
import { RequestError } from "../request-error.ts";
import { notSupported } from "./subjects.ts";

/** Juju's names, including older synonyms. */
const known: ReadonlySet<string> = new Set(["cores", "cpucores", "cpupower", "mem", "arch", "tags"]);
/** Placement constraints that this translation writes; each call replaces them. */
const ours = /^\s*node\.(platform\.arch\s*==|labels\.[^=!\s]+\s*(==|!=))/;

function count(constraints: Params, name: string): number | null {
  const value = constraints.integer(name);
  if (value !== null && value < 0) throw new RequestError(`${name} must not be negative`, "not valid");
  return value;
}

function tagConstraint(tag: string): string {
  const match = /^(\^?)([A-Za-z0-9][\w./-]*)(?:=([\w.:/-]+))?$/.exec(tag);
  if (match === null)
    throw new RequestError(`tag ${JSON.stringify(tag)} is not LABEL=VALUE or ^LABEL=VALUE`, "not valid");
  const [, negated = "", label = "", value = "true"] = match;
  return `node.labels.${label}${negated === "" ? "==" : "!="}${value}`;
}

/** Replaces these constraints of the spec, as Juju does: unset ones are removed. Throws RequestError. */
export function withConstraints(spec: ServiceSpec, constraints: Params): ServiceSpec {
  for (const name of constraints.names()) {
    if (!known.has(name))
      throw notSupported(`unknown constraint ${name}: expected cores, cpu-power, mem, arch or tags`);
  }
  const cores = count(constraints, "cores") ?? count(constraints, "cpu-cores");
  const power = count(constraints, "cpu-power");
  const memory = count(constraints, "mem");
  const arch = constraints.text("arch");
  if (!/^[\w-]*$/.test(arch)) throw new RequestError(`invalid arch ${JSON.stringify(arch)}`, "not valid");
  const task = spec.task ?? TaskSpec.create({});
  const placement = task.placement ?? Placement.create({});
  const resources = task.resources ?? ResourceRequirements.create({});
  const reservations = Resources.patch(resources.reservations ?? Resources.create({}), {
    // A power of 100 is one core.
    nanoCpus: cores === null ? (power ?? 0) * 1e7 : cores * 1e9,
    memoryBytes: (memory ?? 0) * 2 ** 20,
  });
  return ServiceSpec.patch(spec, {
    task: TaskSpec.patch(task, {
      resources: ResourceRequirements.patch(resources, { reservations }),
      placement: Placement.patch(placement, {
        constraints: [
          ...placement.constraints.filter((text) => !ours.test(text)),
          ...(arch === "" ? [] : [`node.platform.arch==${nodeArchitecture(arch)}`]),
          ...constraints.texts("tags").map(tagConstraint),
        ],
      }),
    }),
  });
}
