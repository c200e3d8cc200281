/**
 * The seal of a recording or a backup: the digest of all its parts, signed with the key of the manager that made it. A reader
 * learns from it who made the file, and that nothing was changed since.
 *
 * The certificate shows that the signer is a manager of the cluster that the file names. The file carries the root that it is
 * checked against, so a reader who must exclude a cluster made up for the purpose compares the root's digest.
 */
import { createHash, createPublicKey, sign, verify, type Hash } from "node:crypto";
import { describeCertificate } from "../../lib/pki/index.ts";
import { RecordingEnd } from "../../proto/gen/messages.ts";
import { lengthOf } from "../part-file.ts";

/** Certificate and key of the manager that makes a recording. */
export interface RecordingSigner {
  readonly certificatePem: string;
  readonly keyPem: string;
  readonly rootPem: string;
}

export type SealCheck =
  | { readonly kind: "signed"; readonly managerId: string; readonly clusterId: string; readonly rootDigest: string }
  /** The manager had no certificate. */
  | { readonly kind: "unsigned" }
  /** `failed`: the check that failed, as a sentence. */
  | { readonly kind: "broken"; readonly failed: string };

/** The kind of file: distinguishes the signatures from all others by the same key. */
type SealPurpose = "muster recording" | "muster backup";

/** Managers' keys are on P-256. */
const hashName = "sha256";

export class Seal {
  readonly #hash: Hash = createHash(hashName);
  readonly #purpose: Buffer;
  #parts = 0;

  constructor(purpose: SealPurpose = "muster recording") {
    this.#purpose = Buffer.from(`${purpose}\n`);
  }

  get parts(): number {
    return this.#parts;
  }

  /** `part`: encoded. */
  add(part: Uint8Array): void {
    this.#hash.update(lengthOf(part)).update(part);
    this.#parts += 1;
  }

  /** The last part. Without a signer, the recording is not signed. */
  end(missing: readonly string[], signer: RecordingSigner | null): RecordingEnd {
    const plain = RecordingEnd.create({ parts: this.#parts, missing });
    const digest = this.#digestWith(plain);
    if (signer === null) return RecordingEnd.patch(plain, { digest });
    return RecordingEnd.patch(plain, {
      digest,
      certificate: signer.certificatePem,
      root: signer.rootPem,
      signature: sign(hashName, Buffer.concat([this.#purpose, digest]), signer.keyPem),
    });
  }

  /** Checks the last part of a file whose other parts were added. `toMs`: when it was made. */
  check(end: RecordingEnd, { clusterId, toMs }: { readonly clusterId: string; readonly toMs: number }): SealCheck {
    const broken = (failed: string): SealCheck => ({ kind: "broken", failed });
    if (end.parts !== this.#parts)
      return broken(`it has ${this.#parts} parts instead of the ${end.parts} that were written`);
    const digest = this.#digestWith(RecordingEnd.create({ parts: end.parts, missing: end.missing }));
    if (!digest.equals(end.digest))
      return broken("its digest does not fit its contents: it was changed after it was made");
    if (end.signature.length === 0 && end.certificate === "") return { kind: "unsigned" };
    const certificate = describeCertificate(end.certificate, end.root);
    if (certificate.kind === "malformed") return broken(`its certificate is ${certificate.reason}`);
    if (!this.#isSignedBy(end, digest)) return broken("its signature does not fit its certificate");
    // The clock of the manager that signed may be off, so the end of the validity will do.
    if (!certificate.verify(end.root, toMs) && !certificate.verify(end.root, certificate.notAfterMs))
      return broken("its certificate was not issued by the root that it names");
    if (certificate.role !== "swarm-manager") return broken(`its signer ${certificate.nodeId} is not a manager`);
    if (certificate.organization !== clusterId)
      return broken(`its signer belongs to cluster ${certificate.organization}, but it names cluster ${clusterId}`);
    const rootDigest = createHash(hashName).update(end.root).digest("hex");
    return { kind: "signed", managerId: certificate.nodeId, clusterId, rootDigest };
  }

  #digestWith(end: RecordingEnd): Buffer {
    return this.#hash.copy().update(RecordingEnd.encode(end)).digest();
  }

  #isSignedBy({ certificate, signature }: RecordingEnd, digest: Uint8Array): boolean {
    try {
      return verify(hashName, Buffer.concat([this.#purpose, digest]), createPublicKey(certificate), signature);
    } catch {
      return false;
    }
  }
}
