/**
 * ModelConfig: the cluster's description as a model, and keys that clients set. The latter have no effect on the cluster: they
 * are stored in the cluster's labels, as Juju stores unknown keys.
 */
import { series } from "../entities/platform.ts";
import type { Call, FacadeSources, Method } from "../facade.ts";
import { serverVersion } from "../model.ts";
import { RequestError } from "../request-error.ts";
import { keyed, type Json } from "../results.ts";
import type { AnnotationWork } from "./annotations.ts";
import { modelConstraintMethods } from "./model-constraints.ts";

const labelPrefix = "muster.json.config.";
/** Juju's own rule for keys. */
const isKey = /^[a-z][a-z0-9-]{0,99}$/;
const setting = (value: Json): Json => ({ value, source: "model" });

export function configMethods(sources: FacadeSources, annotations: AnnotationWork): Record<string, Method> {
  const { feed, store } = sources;
  const constraints = modelConstraintMethods(sources, annotations);
  const own = ({ session }: Pick<Call, "session">): Record<string, string> => {
    const { model } = feed.view();
    return {
      name: model.name,
      uuid: model.id,
      type: "muster",
      "agent-version": serverVersion(session.clientMajor),
      "default-base": "ubuntu@22.04/stable",
      "default-series": series,
    };
  };
  const labelOf = (key: string, call: Call): string => {
    if (!isKey.test(key)) throw new RequestError(`${JSON.stringify(key)} is not a valid config key`, "not valid");
    if (key in own(call)) throw new RequestError(`config ${key} cannot be changed`, "not valid");
    return `${labelPrefix}${key}`;
  };
  return {
    ModelGet: {
      needs: "read-only",
      run(call) {
        const pairs = Object.entries(own(call)).map(([key, value]) => [key, setting(value)] as const);
        for (const cluster of store.all("cluster")) {
          for (const [label, value] of Object.entries(cluster.spec?.annotations?.labels ?? {}))
            if (label.startsWith(labelPrefix)) pairs.push([label.slice(labelPrefix.length), setting(value)]);
        }
        return { config: keyed(pairs) };
      },
    },
    ModelSet: {
      needs: "admin",
      async run(call) {
        const labels = new Map<string, string>();
        for (const [key, value] of call.params.map("config"))
          labels.set(labelOf(key, call), typeof value === "string" ? value : JSON.stringify(value));
        await annotations.setModel(call, labels);
        return {};
      },
    },
    ModelUnset: {
      needs: "admin",
      async run(call) {
        await annotations.setModel(call, new Map(call.params.texts("keys").map((key) => [labelOf(key, call), ""])));
        return {};
      },
    },
    GetModelConstraints: constraints.get,
    SetModelConstraints: constraints.set,
  };
}
