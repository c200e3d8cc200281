/**
 * Constraints in Juju's words, and as a service's spec says them: `cores` and `mem` are reserved, `arch` and `tags` are
 * placement constraints (`disk=ssd` asks for the node label, `^disk=ssd` refuses it). What a spec asks besides stays.
 */
import { Placement, Resources, ResourceRequirements, ServiceSpec, TaskSpec } from "../../../proto/gen/messages.ts";
import { nodeArchitecture } from "../entities/architecture.ts";
import type { Params } from "../params.ts";
import { RequestError } from "../request-error.ts";
import { notSupported } from "./subjects.ts";

/** Juju's names, some of them older ones of the same thing. */
const known: ReadonlySet<string> = new Set(["cores", "cpucores", "cpupower", "mem", "arch", "tags"]);
/** What this translation made of a constraint before; each is replaced by what is asked now. */
const ours = /^\s*node\.(platform\.arch\s*==|labels\.[^=!\s]+\s*(==|!=))/;

function count(constraints: Params, name: string): number | null {
  const value = constraints.integer(name);
  if (value !== null && value < 0) throw new RequestError(`${name} is below 0`, "not valid");
  return value;
}

function tagConstraint(tag: string): string {
  const match = /^(\^?)([A-Za-z0-9][\w./-]*)(?:=([\w.:/-]+))?$/.exec(tag);
  if (match === null)
    throw new RequestError(`tag ${JSON.stringify(tag)} is not LABEL=VALUE or ^LABEL=VALUE`, "not valid");
  const [, negated = "", label = "", value = "true"] = match;
  return `node.labels.${label}${negated === "" ? "==" : "!="}${value}`;
}

/** Replaces what the spec says of these, as Juju does: what is not named is no longer asked for. Throws RequestError. */
export function withConstraints(spec: ServiceSpec, constraints: Params): ServiceSpec {
  for (const name of constraints.names()) {
    if (!known.has(name))
      throw notSupported(`constraint ${name} means nothing here: cores, cpu-power, mem, arch and tags do`);
  }
  const cores = count(constraints, "cores") ?? count(constraints, "cpu-cores");
  const power = count(constraints, "cpu-power");
  const memory = count(constraints, "mem");
  const arch = constraints.text("arch");
  if (!/^[\w-]*$/.test(arch)) throw new RequestError(`arch ${JSON.stringify(arch)} is none`, "not valid");
  const task = spec.task ?? TaskSpec.create({});
  const placement = task.placement ?? Placement.create({});
  const resources = task.resources ?? ResourceRequirements.create({});
  const reservations = Resources.patch(resources.reservations ?? Resources.create({}), {
    // A power of 100 is one core's.
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
