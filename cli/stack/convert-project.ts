/** Converts a Compose project to cluster objects: reports every error in the files before anything is written. */
import { checkServiceSpec } from "../../machines/validation/service.ts";
import type { ConfigSpec, SecretSpec, ServiceSpec } from "../../proto/gen/messages.ts";
import type { Lookups } from "../service/references.ts";
import { UserError } from "../../lib/user-error.ts";
import { configsOf, networksOf, secretsOf, type StackNetworks } from "./convert-resources.ts";
import { serviceSpecOf } from "./convert-service.ts";
import { inOrderOfDependence } from "./order.ts";
import type { Project } from "./project.ts";
import { View } from "./view.ts";

interface Converted {
  /** As in the files. */
  readonly services: ReadonlyMap<string, View>;
  readonly networks: StackNetworks;
  readonly secrets: readonly SecretSpec[];
  readonly configs: readonly ConfigSpec[];
  /** The services, each after its dependencies. Throws UserError. */
  specsWith(lookups: Lookups): readonly ServiceSpec[];
}

/** Throws UserError, with file, line and key if possible. */
export function converted(project: Project, stack: string): Converted {
  const view = new View(project.tree, "");
  const services = view.children("services");
  return {
    services,
    networks: networksOf(view, stack),
    secrets: secretsOf(view, stack, project.variables),
    configs: configsOf(view, stack, project.variables),
    specsWith: (lookups) =>
      inOrderOfDependence(services).map((name) => {
        const service = services.get(name) ?? new View(undefined, "");
        const spec = serviceSpecOf(name, service, { stack, project: view, lookups });
        const refusal = checkServiceSpec(spec);
        if (refusal !== null) throw new UserError(`service ${name}: ${refusal.message}`);
        return spec;
      }),
  };
}

/** Assumes that every referenced object exists. */
const anything: Lookups = { network: (name) => name, secret: (name) => name, config: (name) => name };

/** Throws UserError for everything that `stack deploy` would reject without contacting the cluster. */
export function checkProject(project: Project): void {
  converted(project, "stack").specsWith(anything);
}
