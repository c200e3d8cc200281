/**
 * Decides what a change of the cluster's CA settings requires: nothing, another key, or another root. The rules, their order
 * and their messages are SwarmKit's. Checks that need the network (does an external CA answer?) are returned as needs.
 */
import { ExternalCA_CAProtocol, RootCA, RootRotation, type CAConfig } from "../../proto/gen/messages.ts";
import { invalid, type Refusal } from "../refusal.ts";

/** Minimum remaining lifetime of a root: a year (SwarmKit's), in milliseconds. */
const rootLifeMsMin = 365 * 86_400_000;

/** A CA that signs for this root (normalized PEM) must answer at one of the URLs. */
export interface ExternalNeed {
  readonly rootPem: string;
  readonly urls: readonly string[];
  /** The error if none answers. */
  readonly refusal: Refusal;
}

type RootOutcome =
  | { readonly kind: "refused"; readonly refusal: Refusal }
  /** The root stays, or becomes this one without a rotation. */
  | { readonly kind: "settled"; readonly rootCa: RootCA }
  /** Rotation to this root, or to a new one if null. `keyPem` is empty if only an external CA has the key. */
  | { readonly kind: "rotation"; readonly root: { readonly certificatePem: string; readonly keyPem: string } | null };

interface RootDecision {
  /** To be checked first, in this order. */
  readonly needs: readonly ExternalNeed[];
  readonly outcome: RootOutcome;
}

/** The result of parsing a request's certificate and key. */
type RootReading =
  | { readonly kind: "root"; readonly certificatePem: string; readonly count: number; readonly notAfterMs: number }
  | { readonly kind: "refused"; readonly reason: string };

interface RootTools {
  /** The certificates of a PEM text in normalized form. */
  normalize(pem: string): string;
  /** Whether the certificate and key (null: none) form a root that is valid now. */
  check(certificatePem: string, keyPem: string | null): RootReading;
  readonly nowMs: number;
}

const text = new TextDecoder();
const bytes = new TextEncoder();

export function decideRoot(present: RootCA, wanted: CAConfig, tools: RootTools): RootDecision {
  const needs: ExternalNeed[] = [];
  const ended = (outcome: RootOutcome): RootDecision => ({ needs, outcome });
  const refused = (message: string): RootDecision => ended({ kind: "refused", refusal: invalid(message) });
  const normalize = (pem: Uint8Array): string => tools.normalize(text.decode(pem));
  const rootPem = normalize(present.caCert);
  const need = (pem: string, which: string): void => void needs.push(externalNeed(wanted, rootPem, pem, which, tools));

  const wantedPem = text.decode(wanted.signingCaCert);
  const wantedKey = wanted.signingCaKey.length === 0 ? null : text.decode(wanted.signingCaKey);
  if (wantedPem === "" && wantedKey !== null) {
    return refused("if a signing CA key is provided, the signing CA cert must also be provided");
  }
  const settled = (fields: Partial<RootCA>): RootDecision =>
    ended({
      kind: "settled",
      rootCa: RootCA.patch(present, { ...fields, lastForcedRotation: wanted.forceRotate }),
    });
  const isPresent = wantedPem !== "" && tools.normalize(wantedPem) === rootPem;
  const rotation = present.rootRotation;

  // A request that adds the current root's key no longer needs an external CA for it.
  if (present.caKey.length === 0 && !(isPresent && wantedKey !== null)) need(rootPem, "current");

  if (wantedPem === "") {
    if (present.lastForcedRotation !== wanted.forceRotate) return ended({ kind: "rotation", root: null });
    if (rotation !== null && rotation.caKey.length === 0) need(normalize(rotation.caCert), "next");
    return ended({ kind: "settled", rootCa: present });
  }

  const root = tools.check(wantedPem, wantedKey);
  if (root.kind === "refused") return refused(root.reason);
  if (root.count !== 1) return refused("the desired CA certificate cannot contain multiple certificates");
  if (root.notAfterMs < tools.nowMs + rootLifeMsMin) return refused("CA certificate expires too soon");
  if (wantedKey === null) need(root.certificatePem, "desired");

  const caKey = bytes.encode(wantedKey ?? "");
  if (isPresent) return settled({ caKey, rootRotation: null });
  if (wantedKey !== null && wantedKey === text.decode(present.caKey)) {
    return refused("Cannot update to a cert with an identical key");
  }
  if (rotation !== null && normalize(rotation.caCert) === root.certificatePem) {
    return settled({ rootRotation: RootRotation.patch(rotation, { caKey }) });
  }
  // The cluster lacks the current root's key, and only the current external CA could cross-sign another external CA's root.
  if (present.caKey.length === 0 && wantedKey === null) {
    return refused("rotating from one external CA to a different external CA is not supported");
  }
  return ended({ kind: "rotation", root: { certificatePem: root.certificatePem, keyPem: wantedKey ?? "" } });
}

function externalNeed(
  { externalCas }: CAConfig,
  presentPem: string,
  pem: string,
  which: string,
  tools: RootTools,
): ExternalNeed {
  const urls = externalCas
    .filter(({ caCert, protocol }) => {
      const signsFor = caCert.length === 0 ? presentPem : tools.normalize(text.decode(caCert));
      return protocol === ExternalCA_CAProtocol.CFSSL && signsFor === pem;
    })
    .map(({ url }) => url);
  const message = `there must be at least one valid, reachable external CA corresponding to the ${which} CA certificate`;
  return { rootPem: pem, urls, refusal: invalid(message) };
}
