/**
 * Model constraints: defaults for applications that are deployed without their own. They are stored in a label of the cluster;
 * existing applications keep theirs, as in Juju.
 */
import { ServiceSpec } from "../../../proto/gen/messages.ts";
import type { Store } from "../../../runtime/store/store.ts";
import type { Call, FacadeSources, Method } from "../facade.ts";
import { Params } from "../params.ts";
import type { Json } from "../results.ts";
import type { JsonFields } from "./bulk.ts";
import { withConstraints } from "./constraints.ts";

const label = "muster.json.constraints";
/** Synonyms: an application that sets one of them gets none of them from the model. */
const cpu: readonly string[] = ["cores", "cpu-cores", "cpu-power"];

/** In Juju's terms; empty if none are set. */
export function modelConstraints(store: Store): JsonFields {
  for (const cluster of store.all("cluster")) {
    const text = cluster.spec?.annotations?.labels[label] ?? "";
    if (text === "") continue;
    try {
      const value = JSON.parse(text) as unknown;
      if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as JsonFields;
    } catch {
      // The label was written by something else; ignore it.
    }
  }
  return {};
}

/** The constraints for the deployment of an application with these constraints of its own. */
export function withModelConstraints(store: Store, own: Params): Params {
  const hasCpu = cpu.some((name) => own.has(name));
  const inherited = Object.entries(modelConstraints(store)).filter(
    ([name]) => !own.has(name) && !(hasCpu && cpu.includes(name)),
  );
  return Params.of(Object.fromEntries([...inherited, ...own.entries()]), "constraints");
}

/** The label's text. Throws RequestError for constraints that `withConstraints` refuses. */
function kept(constraints: Params): string {
  withConstraints(ServiceSpec.create({}), constraints);
  const value = {
    arch: constraints.text("arch") || undefined,
    cores: constraints.integer("cores") ?? constraints.integer("cpu-cores") ?? undefined,
    "cpu-power": constraints.integer("cpu-power") ?? undefined,
    mem: constraints.integer("mem") ?? undefined,
    tags: constraints.texts("tags").length === 0 ? undefined : constraints.texts("tags"),
  };
  const text = JSON.stringify(value);
  // An empty label is removed.
  return text === "{}" ? "" : text;
}

/** `Get…` and `Set…` for every facade with model constraints; a set replaces all of them. */
export function modelConstraintMethods(
  { store }: Pick<FacadeSources, "store">,
  annotations: { setModel(call: Call, labels: ReadonlyMap<string, string>): Promise<void> },
): { readonly get: Method; readonly set: Method } {
  return {
    get: { needs: "read-only", run: () => ({ constraints: modelConstraints(store) as Json }) },
    set: {
      needs: "admin",
      async run(call) {
        await annotations.setModel(call, new Map([[label, kept(call.params.object("constraints"))]]));
        return {};
      },
    },
  };
}
