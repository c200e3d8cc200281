/**
 * What a change of the cluster's CA settings asks for: nothing, another key, or another root. The rules, their order and
 * their texts are SwarmKit's; what has to be found out beyond the request (who answers at an address) is named, not done.
 */
import { ExternalCA_CAProtocol, RootCA, RootRotation, type CAConfig } from "../../proto/gen/messages.ts";
import { invalid, type Refusal } from "../refusal.ts";

/** A root has to last for a year at least (SwarmKit's), in milliseconds. */
const rootLifeMsMin = 365 * 86_400_000;

/** That somebody who signs for this root (PEM, in one form) answers at one of the addresses. */
export interface ExternalNeed {
  readonly rootPem: string;
  readonly urls: readonly string[];
  /** What is answered when nobody does. */
  readonly refusal: Refusal;
}

export type RootOutcome =
  | { readonly kind: "refused"; readonly refusal: Refusal }
  /** The root stays, or is this one from now on, without a rotation. */
  | { readonly kind: "settled"; readonly rootCa: RootCA }
  /** Another root follows: this one, or with null one that is to be made. `keyPem` is empty where only an external CA has it. */
  | { readonly kind: "rotation"; readonly root: { readonly certificatePem: string; readonly keyPem: string } | null };

export interface RootDecision {
  /** To be found true first, in this order. */
  readonly needs: readonly ExternalNeed[];
  readonly outcome: RootOutcome;
}

/** What is known of the certificate and key in a request. */
export type RootReading =
  | { readonly kind: "root"; readonly certificatePem: string; readonly count: number; readonly notAfterMs: number }
  | { readonly kind: "refused"; readonly reason: string };

export interface RootTools {
  /** Certificates of a PEM text in one form. */
  normalize(pem: string): string;
  /** Whether certificate and key (null: none) make a root now. */
  check(certificatePem: string, keyPem: string | null): RootReading;
  readonly nowMs: number;
}

const text = new TextDecoder();
const bytes = new TextEncoder();

/** Decides what the settings mean for the root that there is. */
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

  // Who adds the key of the present root needs no external CA for it any more.
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
  // The present root's key is nowhere here, and nobody but its own external CA could vouch for another external CA's root.
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
