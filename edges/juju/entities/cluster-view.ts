/** The whole cluster as one status shows it, and its selection by patterns (`juju status web* 17`). */
import type { ApplicationView, MachineView, ModelView, RelationView, UnitView } from "./views.ts";

export interface ClusterView {
  readonly model: ModelView;
  readonly machines: readonly MachineView[];
  readonly applications: readonly ApplicationView[];
  readonly units: readonly UnitView[];
  readonly relations: readonly RelationView[];
}

/** Supports `*` and `?`, as in file names. Linear in the name for each star, so no pattern is slow. */
export function globMatches(pattern: string, name: string): boolean {
  let at = 0;
  let star = -1;
  let resume = 0;
  let place = 0;
  while (place < name.length) {
    if (pattern[at] === "*") {
      star = at;
      resume = place;
      at += 1;
    } else if (at < pattern.length && (pattern[at] === "?" || pattern[at] === name[place])) {
      at += 1;
      place += 1;
    } else if (star >= 0) {
      at = star + 1;
      resume += 1;
      place = resume;
    } else {
      return false;
    }
  }
  while (pattern[at] === "*") at += 1;
  return at === pattern.length;
}

/**
 * Units whose name, application or work matches, with their applications and machines; applications and machines that match
 * themselves; and relations of selected applications. Without patterns, everything.
 */
export function selected(all: ClusterView, patterns: readonly string[]): ClusterView {
  if (patterns.length === 0) return all;
  const matches = (...names: readonly string[]): boolean =>
    names.some((name) => patterns.some((pattern) => globMatches(pattern, name)));
  const units = all.units.filter(({ id, application, machine, words }) =>
    matches(id, application, machine, words.workload.current),
  );
  const applicationsOf = new Set(units.map(({ application }) => application));
  const machinesOf = new Set(units.map(({ machine }) => machine));
  const applications = all.applications.filter(({ id }) => applicationsOf.has(id) || matches(id));
  const shown = new Set(applications.map(({ id }) => id));
  return {
    model: all.model,
    machines: all.machines.filter(({ id, hostname }) => machinesOf.has(id) || matches(id, hostname)),
    applications,
    units,
    relations: all.relations.filter((relation) => relation.applications.some((name) => shown.has(name))),
  };
}

/** The related applications, by the name of the relation's endpoint. */
export function relatedTo(application: string, relations: readonly RelationView[]): readonly string[] {
  const others = new Set<string>();
  for (const relation of relations) {
    if (!relation.applications.includes(application)) continue;
    for (const other of relation.applications) if (other !== application) others.add(other);
  }
  return [...others].toSorted();
}

/** A machine's hardware in the clients' format: `arch=amd64 cores=8 mem=16000M`. */
export function hardwareText({ architecture, cores, memoryMib }: MachineView): string {
  return [
    architecture === "" ? "" : `arch=${architecture}`,
    cores === 0 ? "" : `cores=${cores}`,
    memoryMib === 0 ? "" : `mem=${memoryMib}M`,
  ]
    .filter((part) => part !== "")
    .join(" ");
}
