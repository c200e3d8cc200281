/** Checks of changes to the cluster object. */
import type { AcceptancePolicy, ClusterSpec } from "../../proto/gen/messages.ts";
import { clusterName } from "../names.ts";
import { invalid, type Refusal } from "../refusal.ts";
import { isNegative } from "./task-spec.ts";

/** SwarmKit's minimum lifetime of a node certificate; engines renew after half of it. */
export const certificateExpirySecondsMin = 3_600;

function checkAcceptance(policy: AcceptancePolicy | null): Refusal | null {
  for (const { secret } of policy?.policies ?? []) {
    if (secret !== null && secret.alg.toLowerCase() !== "bcrypt") {
      return invalid(`hashing algorithm is not supported: ${secret.alg}`);
    }
  }
  return null;
}

/** Everything except the root certificate, which `root-ca.ts` checks. */
export function checkClusterSpec(spec: ClusterSpec): Refusal | null {
  const { caConfig, dispatcher } = spec;
  const expiry = caConfig?.nodeCertExpiry ?? null;
  if (expiry !== null && expiry.seconds < certificateExpirySecondsMin) {
    return invalid("minimum certificate expiry time is: 1h0m0s");
  }
  const acceptance = checkAcceptance(spec.acceptancePolicy);
  if (acceptance !== null) return acceptance;
  if (isNegative(dispatcher?.heartbeatPeriod ?? null)) {
    return invalid("heartbeat time period cannot be a negative duration");
  }
  if ((spec.annotations?.name ?? "") !== clusterName) return invalid("modification of cluster name is not allowed");
  return null;
}
