/**
 * Requests and answers of CFSSL's signing API (https://github.com/cloudflare/cfssl, doc/api/endpoint_sign.txt): JSON over
 * HTTPS. Field names are CFSSL's.
 */
import type { ExternalRequest } from "../../runtime/ports/external-ca.ts";

/** The profile with which an external CA signs CA certificates: SwarmKit's name. */
const crossSignProfile = "CA";
const basicConstraintsOid = [2, 5, 29, 19];

/** The JSON of a signing request. Managers are also dialed as "swarm-ca", so their certificates carry that name too. */
export function signingRequest(request: ExternalRequest): string {
  if (request.kind === "node") {
    const { csrPem, nodeId, organization, role } = request.node;
    return JSON.stringify({
      hosts: role === "swarm-manager" ? [role, nodeId, "swarm-ca"] : [role, nodeId],
      certificate_request: csrPem,
      subject: { CN: nodeId, names: [{ O: organization, OU: role }] },
      profile: "",
      label: "",
    });
  }
  const { basicConstraints, commonName, csrPem } = request.root;
  return JSON.stringify({
    hosts: null,
    certificate_request: csrPem,
    subject: { CN: commonName, names: [] },
    profile: crossSignProfile,
    label: "",
    // CFSSL ignores this extension in the CSR itself.
    extensions:
      basicConstraints === null
        ? []
        : [
            {
              id: basicConstraintsOid,
              critical: basicConstraints.isCritical,
              value: Buffer.from(basicConstraints.value).toString("hex"),
            },
          ],
  });
}

type SigningAnswer =
  | { readonly kind: "signed"; readonly certificatePem: string }
  | { readonly kind: "refused"; readonly reason: string };

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

/** Parses an answer's body. Never throws. */
export function signingAnswer(body: string): SigningAnswer {
  let answer: unknown;
  try {
    answer = JSON.parse(body);
  } catch {
    return { kind: "refused", reason: "the answer is not JSON" };
  }
  if (!isRecord(answer)) return { kind: "refused", reason: "the answer is not a JSON object" };
  const { errors, result, success } = answer;
  if (success !== true) {
    const first: unknown = Array.isArray(errors) ? errors[0] : null;
    const message = isRecord(first) && typeof first["message"] === "string" ? first["message"] : "no reason was given";
    return { kind: "refused", reason: message };
  }
  const certificatePem = isRecord(result) ? result["certificate"] : null;
  return typeof certificatePem === "string" && certificatePem.includes("-----BEGIN CERTIFICATE-----")
    ? { kind: "signed", certificatePem }
    : { kind: "refused", reason: "the answer contains no certificate" };
}
