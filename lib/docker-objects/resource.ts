/** Extensions and resources, which Docker's API lacks, in the format of its secrets and configs. */
import type { Extension, Resource } from "../../proto/gen/messages.ts";
import { base64, head, ifThere, mapOf, type DockerObject } from "./values.ts";

export function extensionObject(extension: Extension): DockerObject {
  return {
    ...head(extension),
    Name: extension.annotations?.name ?? "",
    Labels: mapOf(extension.annotations?.labels),
    Description: extension.description,
  };
}

export function resourceObject(resource: Resource): DockerObject {
  return {
    ...head(resource),
    Name: resource.annotations?.name ?? "",
    Labels: mapOf(resource.annotations?.labels),
    Kind: resource.kind,
    Payload: ifThere(resource.payload, ({ type_url: TypeUrl, value }) => ({ TypeUrl, Value: base64(value) })),
  };
}
