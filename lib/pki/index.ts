/** X.509 for the cluster: its root, node certificates, requests for them, and the join tokens that pin the root. */
export { createRoot, issue, type IssueRequest } from "./authority.ts";
export {
  certificatesOf,
  describeCertificate,
  isChainVouchedFor,
  isInForce,
  renewalInstant,
  type CertificateDescription,
  type CertificateOutcome,
  type NodeRoleName,
} from "./certificate.ts";
export { createKeyAndCsr, readCsr, type CsrOutcome } from "./csr.ts";
export { createLocalIdentity, type LocalIdentity } from "./localhost.ts";
export {
  isSameToken,
  joinSecretBytes,
  makeJoinToken,
  parseJoinToken,
  rootMatches,
  type JoinToken,
} from "./join-token.ts";
export {
  checkRoot,
  crossSign,
  crossSignRequest,
  intermediatesOf,
  issuerName,
  normalizePem,
  type CrossSignRequest,
  type IssuerName,
  type RootOutcome,
} from "./root.ts";
export { createNatsAuthority, issueNatsIdentity, natsName, type NatsAuthority } from "./nats.ts";
export { createServerIdentity, type ServerIdentityRequest } from "./server.ts";
export { issueUserCertificate, userUnit, validUntilMs, type UserCertificateRequest } from "./user.ts";
