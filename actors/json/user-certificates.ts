/**
 * The UserCertificates service: issues certificates to users who control managers from another machine. Any manager signs, with
 * the root's key from its replica; only the login is written.
 *
 * UC1: a certificate is bound to the password that was shown, or that the user had when an admin requested it; never to a later
 *      one.
 * UC2: the request is parsed, beyond its length, only after the password has been verified.
 */
import { issuerOf } from "../../machines/certificates/issuer.ts";
import { checkUserCertificateSeconds, userCertificateSeconds } from "../../machines/certificates/user-certificate.ts";
import { UserCertificateResponse, type User, type UserCertificatesService } from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import type { UserCertificateRequest } from "../../lib/pki/index.ts";
import { RpcError, Status, type Peer, type ServiceHandlers } from "../../runtime/ports/rpc.ts";
import { demand, notFound } from "../control/answer.ts";
import type { Environment } from "../environment.ts";
import { clusterOf } from "../manager/bootstrap.ts";
import type { Logins } from "./logins.ts";
import { certifiedRole, passwordMark, recordId } from "./user-records.ts";

interface UserAuthority {
  readCsr(pem: Uint8Array | string): { readonly kind: "csr" } | { readonly kind: "refused"; readonly reason: string };
  issueUserCertificate(request: UserCertificateRequest): string;
  normalizePem(pem: string): string;
}

interface Wish {
  readonly csr: Uint8Array;
  readonly lifetimeSeconds: number;
}

/** Does not reveal whether the name exists. */
const refusedSentence = "wrong user name or password, or the user is disabled";

export function createUserCertificates(
  env: Environment,
  logins: Pick<Logins, "check">,
  authority: UserAuthority,
): ServiceHandlers<typeof UserCertificatesService> {
  const { clock, store, telemetry } = env;
  const userOf = (name: string): User | undefined => store.get("user", recordId({ kind: "user", name }));

  function issue(
    user: User,
    name: string,
    mark: string,
    { csr, lifetimeSeconds }: Wish,
    peer: Peer,
  ): UserCertificateResponse {
    demand(checkUserCertificateSeconds(lifetimeSeconds));
    const read = authority.readCsr(csr);
    if (read.kind === "refused")
      throw new RpcError(Status.INVALID_ARGUMENT, `invalid certificate request: ${read.reason}`);
    const cluster = clusterOf(env);
    const issuer = cluster === undefined ? null : issuerOf(cluster, authority.normalizePem);
    if (cluster === undefined || issuer === null)
      throw new RpcError(Status.UNAVAILABLE, "the cluster has no root certificate yet: try again in a moment");
    const { intermediatesPem, keyPem, rootPem, trustedPem } = issuer;
    if (keyPem === "") {
      throw new RpcError(
        Status.FAILED_PRECONDITION,
        "cannot issue certificates to users: only an external CA has the key of the cluster's root, and it signs for nodes",
      );
    }
    const nowMs = clock.now();
    const validitySeconds = userCertificateSeconds(lifetimeSeconds);
    const certificate = authority.issueUserCertificate({
      csrPem: csr,
      rootCertificatePem: rootPem,
      rootKeyPem: keyPem,
      name,
      mark,
      organization: cluster.id,
      validitySeconds,
      nowMs,
      intermediatesPem,
    });
    telemetry.log.info(
      { user: name, peer: peer.address, by: peer.user ?? "", seconds: validitySeconds },
      "issued a user's certificate",
    );
    return UserCertificateResponse.create({
      certificate: new TextEncoder().encode(certificate),
      rootCertificates: new TextEncoder().encode(trustedPem === rootPem ? trustedPem : trustedPem + rootPem),
      role: user.role,
      notAfter: timestampOf(nowMs + validitySeconds * 1_000),
    });
  }

  return {
    async Login({ name, password, csr, lifetimeSeconds }, { peer }) {
      const before = userOf(name);
      const mark = before === undefined ? null : passwordMark(before);
      // Reads, in this same turn, the record that the mark belongs to (UC1).
      const outcome = await logins.check({
        name: { kind: "user", name },
        password,
        certifiedNode: null,
        address: peer.address,
      });
      if (outcome.kind === "busy")
        throw new RpcError(Status.RESOURCE_EXHAUSTED, "too many logins: try again in a minute");
      const user = userOf(name);
      if (
        outcome.kind === "refused" ||
        user === undefined ||
        mark === null ||
        certifiedRole(store, name, mark) === null
      )
        throw new RpcError(Status.UNAUTHENTICATED, refusedSentence);
      return issue(user, name, mark, { csr, lifetimeSeconds }, peer);
    },

    IssueUserCertificate({ name, csr, lifetimeSeconds }, { peer }) {
      const user = userOf(name);
      if (user === undefined) throw notFound("user", name);
      const mark = passwordMark(user);
      if (mark === null || certifiedRole(store, name, mark) === null)
        throw new RpcError(
          Status.FAILED_PRECONDITION,
          `user ${name} is disabled: enable it first with 'muster user enable ${name}'`,
        );
      return issue(user, name, mark, { csr, lifetimeSeconds }, peer);
    },
  };
}
