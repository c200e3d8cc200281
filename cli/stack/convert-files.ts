/** Secrets and configs granted to a Compose service, as files of its tasks. */
import { ConfigReference, FileTarget, SecretReference } from "../../proto/gen/messages.ts";
import type { Lookups } from "../service/references.ts";
import { scoped } from "./names.ts";
import type { View } from "./view.ts";

/** Docker's default: readable by everyone in the container. */
const fileModeDefault = 0o444;

/** The project around a service, with the definitions that it refers to. */
export interface Surroundings {
  readonly stack: string;
  readonly project: View;
  /** Ids of the cluster's objects. */
  readonly lookups: Lookups;
}

/** The cluster's name of the project's secret or config `key`. */
export function clusterName(project: View, kind: "secrets" | "configs", key: string, stack: string): string | null {
  const held = project.child(kind);
  if (!held.has(key)) return null;
  const own = held.child(key);
  return own.text("name") || (own.boolean("external") === true ? key : scoped(stack, key));
}

interface Grant {
  readonly name: string;
  readonly view: View;
  readonly file: FileTarget;
}

function grants(service: View, kind: "secrets" | "configs", { project, stack }: Surroundings): readonly Grant[] {
  const taken = new Set<string>();
  const found = service.items(kind).map((view) => {
    const source = view.text("source");
    if (source === "") throw view.mistake("", "requires 'source'");
    const name = clusterName(project, kind, source, stack);
    if (name === null) throw view.mistake("source", `refers to '${source}', which '${kind}' does not define`);
    const target = view.text("target") || source;
    if (taken.has(target)) throw view.mistake("target", `is a duplicate: '${target}'`);
    taken.add(target);
    const file = FileTarget.create({
      name: target,
      uid: view.text("uid") || "0",
      gid: view.text("gid") || "0",
      mode: view.mode("mode") ?? fileModeDefault,
    });
    return { name, view, file };
  });
  return found.toSorted((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
}

/** Sorted by name in the cluster. Throws UserError, also for what the cluster lacks. */
export function filesOf(
  service: View,
  around: Surroundings,
): { readonly secrets: readonly SecretReference[]; readonly configs: readonly ConfigReference[] } {
  const { lookups } = around;
  return {
    secrets: grants(service, "secrets", around).map(({ name, file }) =>
      SecretReference.create({ secretId: lookups.secret(name), secretName: name, file }),
    ),
    configs: grants(service, "configs", around).map(({ name, file }) =>
      ConfigReference.create({ configId: lookups.config(name), configName: name, file }),
    ),
  };
}
