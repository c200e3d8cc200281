/**
 * How a node shows a NATS of the cluster who it is: with its certificate, and with a signature of that server's challenge by the
 * certificate's key. nats-server itself can demand certificates of all clients or of none, and a node that joins has none: it shows
 * that it knows a join token, without sending it.
 *
 * PR1: credentials shown to one server are of no use at another, nor a second time at the same one: the signed text has the server's
 *      nonce for this connection and, with a certificate, the fingerprint of the server's own.
 * PR2: a chain is read in one way. OpenSSL skips blocks that Muster reads, so a client could otherwise sign with the key of one
 *      certificate and be identified by another, such as a manager's, which anybody can see.
 */
import { createHmac, sign, timingSafeEqual, verify, type KeyObject } from "node:crypto";
import { certificatesOf } from "./certificate.ts";

/** The certificate's name of a manager's NATS for nodes. */
export const nodesNatsName = "muster-nodes-nats";

/** A server's challenge. */
interface Challenge {
  readonly nonce: string;
  /** SHA-256 of the server's certificate, as in `X509Certificate.fingerprint256`. */
  readonly server: string;
}

/** The two fields of a client's CONNECT. */
export interface Presented {
  readonly token: string;
  readonly signature: string;
}

export type Claim =
  /** `chainPem`: the certificate and those that vouch for it. */
  | { readonly kind: "node"; readonly chainPem: string }
  /** `joiner`: an id that stands for the node until it has one. */
  | { readonly kind: "joiner"; readonly joiner: string };

/** Longer than a chain during a rotation of the root, in UTF-16 units. */
const tokenLengthMax = 12 * 1024;
/** Ids of joining nodes have a character that no node's id has. */
const joinerPrefix = "join-";

function signedText({ nonce, server }: Challenge): string {
  return `muster node\n${server}\n${nonce}`;
}

function joinText({ nonce }: Pick<Challenge, "nonce">, joiner: string): string {
  return `muster join\n${joiner}\n${nonce}`;
}

/** The id under which a node joins. `id`: random. */
export function joinerId(id: string): string {
  return joinerPrefix + id;
}

export function presentNode(
  { certificatePem, keyPem }: { readonly certificatePem: string; readonly keyPem: string },
  challenge: Challenge,
): Presented {
  const signature = sign("sha256", Buffer.from(signedText(challenge)), keyPem).toString("base64url");
  return { token: `node.${Buffer.from(certificatePem).toString("base64url")}`, signature };
}

export function presentJoiner(joiner: string, joinToken: string, challenge: Pick<Challenge, "nonce">): Presented {
  return { token: `joiner.${joiner}`, signature: joinProof(joinToken, challenge, joiner).toString("base64url") };
}

function joinProof(joinToken: string, challenge: Pick<Challenge, "nonce">, joiner: string): Buffer {
  return createHmac("sha256", joinToken).update(joinText(challenge, joiner)).digest();
}

/** A client's claim, not checked yet; null for anything else. */
export function readClaim(token: string): Claim | null {
  if (token.length > tokenLengthMax) return null;
  const [, kind, rest = ""] = /^(node|joiner)\.([A-Za-z0-9_-]+)$/.exec(token) ?? [];
  if (kind === "node") return { kind, chainPem: Buffer.from(rest, "base64url").toString("latin1") };
  return kind === "joiner" && rest.startsWith(joinerPrefix) && rest.length <= 64 ? { kind, joiner: rest } : null;
}

/**
 * Whether the signature was made for one of the challenges with the key of the chain's first certificate: the one that
 * `describeCertificate` describes (PR2). Never throws.
 */
export function isSignedBy(chainPem: string, signature: string, challenges: readonly Challenge[]): boolean {
  let key: KeyObject | undefined;
  try {
    key = certificatesOf(chainPem)[0]?.publicKey;
  } catch {
    return false;
  }
  if (key === undefined) return false;
  const bytes = Buffer.from(signature, "base64url");
  return challenges.some((challenge) => verify("sha256", Buffer.from(signedText(challenge)), key, bytes));
}

/** Whether the joiner knows one of the tokens. */
export function knowsToken(
  joiner: string,
  signature: string,
  tokens: readonly string[],
  challenge: Pick<Challenge, "nonce">,
): boolean {
  const bytes = Buffer.from(signature, "base64url");
  return tokens.some((token) => {
    const proof = joinProof(token, challenge, joiner);
    return token !== "" && bytes.length === proof.length && timingSafeEqual(bytes, proof);
  });
}
