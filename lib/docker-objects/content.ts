/** Secrets and configs in Docker's API format. */
import type { Config, Secret } from "../../proto/gen/messages.ts";
import { EmptyField } from "../template/template.ts";
import { base64, driverObject, head, ifThere, mapOf, type DockerObject } from "./values.ts";

/** Without the content, which the manager never returns. */
export function secretObject(secret: Secret): DockerObject {
  const { spec } = secret;
  return {
    ...head(secret),
    Spec: {
      Name: spec?.annotations?.name ?? "",
      Labels: mapOf(spec?.annotations?.labels),
      Driver: ifThere(spec?.driver, driverObject),
      Templating: ifThere(spec?.templating, driverObject),
    },
  };
}

export function configObject(config: Config): DockerObject {
  const { spec } = config;
  return {
    ...head(config),
    Spec: {
      Name: spec?.annotations?.name ?? "",
      Labels: mapOf(spec?.annotations?.labels),
      Data: spec === null || spec.data.length === 0 ? new EmptyField("") : base64(spec.data),
      Templating: ifThere(spec?.templating, driverObject),
    },
  };
}
