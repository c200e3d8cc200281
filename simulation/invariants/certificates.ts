/**
 * Invariants of root rotation, in addition to `invariants.ts`.
 *
 * S20: another root replaces the cluster's root only when every registered node has reported a certificate issued by that
 *      root.
 * S21: both join tokens pin the root that nodes are told to trust, at every version.
 * S22: no handshake between a node and a manager fails because one does not trust the other, unless the node is joining with a
 *      token whose root was replaced.
 * S23: at rest no rotation is in progress, and every node trusts the cluster's root and no other.
 */
import { isIssuedBy } from "../../machines/certificates/issuer.ts";
import { isSameBytes } from "../../machines/same-message.ts";
import type { Cluster, Node } from "../../proto/gen/messages.ts";
import { parseJoinToken, rootMatches } from "../../lib/pki/index.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";
import type { Credentials, TlsMaterial } from "../../actors/agent/ports.ts";
import type { ManagerCertificate } from "../../actors/certificates/manager-certificate.ts";
import { hasRoots, isTrusted } from "../managers/authority.ts";

const text = new TextEncoder();

/** S20 and S21, for one history. */
export class RootChecks {
  /** By node and issuer key: the first version at which the node reported a certificate of that issuer. */
  readonly #said = new Map<string, number>();

  check(commit: Commit, store: Store, mark: (name: string) => void): string | null {
    let wrong: string | null = null;
    for (const change of commit.changes) {
      if (change.action === "remove") continue;
      if (change.table === "node") this.#note(change.object, commit.version);
      if (change.table === "cluster")
        wrong ??= this.#checkCluster(change.object, change.old, commit.version, store, mark);
    }
    return wrong;
  }

  #checkCluster(
    object: Cluster,
    old: Cluster | null,
    version: number,
    store: Store,
    mark: (name: string) => void,
  ): string | null {
    const wrong = checkTokens(object);
    if (wrong !== null) return wrong;
    const rotation = object.rootCa?.rootRotation ?? null;
    const before = old?.rootCa?.rootRotation ?? null;
    if (rotation !== null && before === null) mark("root.rotation.begun");
    if (rotation !== null && before !== null && !isSameBytes(rotation.caCert, before.caCert))
      mark("root.rotation.replaced");
    const root = object.rootCa?.caCert ?? new Uint8Array();
    const isSwitched = old !== null && !isSameBytes(root, old.rootCa?.caCert ?? new Uint8Array());
    if (rotation === null && before !== null) mark(isSwitched ? "root.rotation.done" : "root.rotation.called.off");
    if (!isSwitched) return null;
    const issuer = { subjectDer: text.encode("swarm-ca"), publicKeyDer: root };
    for (const { description, id } of store.all("node")) {
      if (description === null || isIssuedBy(description.tlsInfo, issuer)) continue;
      // A delayed registration may report a certificate that the node has replaced since.
      if ((this.#said.get(statement(id, root)) ?? version) < version) continue;
      return `S20: the root was replaced while node ${id} had a certificate of another root`;
    }
    return null;
  }

  #note({ description, id }: Node, version: number): void {
    const key = description?.tlsInfo?.certIssuerPublicKey;
    if (key === undefined) return;
    const said = statement(id, key);
    this.#said.set(said, Math.min(version, this.#said.get(said) ?? version));
  }
}

function statement(nodeId: string, publicKeyDer: Uint8Array): string {
  return `${nodeId} ${Buffer.from(publicKeyDer).toString("base64")}`;
}

function checkTokens({ rootCa }: Cluster): string | null {
  for (const role of ["worker", "manager"] as const) {
    const token = parseJoinToken(rootCa?.joinTokens?.[role] ?? "");
    if (token.kind === "invalid" || !rootMatches(token, rootCa?.caCert ?? new Uint8Array()))
      return `S21: the ${role} token does not pin the cluster's root`;
  }
  return null;
}

/** S22: why the two do not trust each other, or null. */
export function handshakeProblem(
  server: ManagerCertificate | null,
  credentials: Credentials,
  { certificatePem, rootPem }: TlsMaterial,
): string | null {
  if (server === null || credentials === "bootstrap-unverified") return null;
  if (!isTrusted(server.certificatePem, rootPem)) return "the node does not trust the manager's certificate";
  if (credentials === "node" && !isTrusted(certificatePem, server.acceptedPem))
    return "the manager does not trust the node's certificate";
  return null;
}

/** A rotation waits for the cluster's nodes only: one that is still joining has to start again with another token. S22 */
export const joinsTooLate = (
  server: ManagerCertificate | null,
  credentials: Credentials,
  { rootPem }: TlsMaterial,
): boolean => credentials === "bootstrap" && server !== null && !hasRoots(rootPem, server.acceptedPem);

/** S23: why certificates are not at rest, or null. */
export function findUntrusting(store: Store): string | null {
  for (const { rootCa } of store.all("cluster")) {
    if (rootCa?.rootRotation != null) return "S23: the root certificate is still being rotated";
    const root = rootCa?.caCert ?? new Uint8Array();
    for (const { description, id } of store.all("node")) {
      if (description !== null && !isSameBytes(description.tlsInfo?.trustRoot ?? new Uint8Array(), root))
        return `S23: node ${id} does not trust the cluster's root`;
    }
  }
  return null;
}
