/**
 * Checks of object names. The patterns accept exactly what SwarmKit's accept, but avoid nested repetition, so that a long
 * invalid name costs no more than a valid one.
 */
import type { Annotations } from "../proto/gen/messages.ts";
import { invalid, type Refusal } from "./refusal.ts";

/** A DNS label: RFC 1035 §2.3.4. Services and networks are looked up by name in a network's DNS. */
const dnsNameLengthMax = 63;
const dnsName = /^[a-zA-Z0-9](?:[a-zA-Z0-9_-]*[a-zA-Z0-9])?$/;
/** SwarmKit's limit for secrets and configs. */
const secretNameLengthMax = 64;
const secretName = /^[a-zA-Z0-9](?:[a-zA-Z0-9_.-]*[a-zA-Z0-9])?$/;

/** The name of the only cluster object. */
export const clusterName = "default";

/** For services and networks. */
export function checkDnsName(annotations: Annotations | null): Refusal | null {
  const name = annotations?.name ?? "";
  if (name === "") return invalid("meta: name must be provided");
  if (!dnsName.test(name)) return invalid("name must be valid as a DNS name component");
  if (name.length > dnsNameLengthMax) return invalid("name must be 63 characters or fewer");
  return null;
}

/** For secrets and configs. */
export function checkSecretName(annotations: Annotations | null): Refusal | null {
  const name = annotations?.name ?? "";
  if (name === "") return invalid("name must be provided");
  if (name.length > secretNameLengthMax || !secretName.test(name)) {
    return invalid(
      "invalid name, only 64 [a-zA-Z0-9-_.] characters allowed, and the start and end character must be [a-zA-Z0-9]",
    );
  }
  return null;
}

/** For volumes, extensions and resources, which nothing looks up by DNS. */
export function checkNameGiven(annotations: Annotations | null): Refusal | null {
  return (annotations?.name ?? "") === "" ? invalid("meta: name must be provided") : null;
}
