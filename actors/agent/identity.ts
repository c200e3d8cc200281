/** The identity of a node on its disk: read once, and later durable before it is in use (C2). */
import { AgentIdentity } from "../../proto/gen/messages.ts";
import { assert } from "../../lib/assert.ts";
import { isInForce, type CertificateDescription } from "../../lib/pki/index.ts";
import type { AgentPorts, TlsMaterial } from "./ports.ts";

const record = "identity";
const hourMs = 3_600_000;

/** This node's identity: a certificate, its key, and the trusted root. */
export interface Identity extends TlsMaterial {
  readonly facts: CertificateDescription;
}

type LoadedIdentity =
  | { readonly kind: "held"; readonly identity: Identity }
  | { readonly kind: "absent" }
  /** `reason`: a sentence for the operator, including what to do. */
  | { readonly kind: "unusable"; readonly reason: string };

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
const decode = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

export class KeptIdentity {
  readonly #ports: Pick<AgentPorts, "certificates" | "clock" | "disk">;
  #current: Identity | null = null;
  /** Writes run one after the other, each based on the one before. */
  #writing: Promise<void> = Promise.resolve();

  constructor(ports: Pick<AgentPorts, "certificates" | "clock" | "disk">) {
    this.#ports = ports;
  }

  /** Null before the first. */
  get current(): Identity | null {
    return this.#current;
  }

  /** The saved identity, which is then in use if it is usable. */
  async load(): Promise<LoadedIdentity> {
    const { certificates, clock, disk } = this.#ports;
    const saved = await disk.load(record);
    if (saved === null) return { kind: "absent" };
    const { root, certificate, key } = AgentIdentity.decode(saved);
    const [rootPem, certificatePem] = [decode(root), decode(certificate)];
    const facts = certificates.describe(certificatePem, rootPem);
    if (facts.kind === "malformed")
      return {
        kind: "unusable",
        reason: `cannot read the node's saved certificate (${facts.reason}): empty the data directory and join again`,
      };
    const at = clock.now();
    if (facts.notAfterMs < at) {
      return {
        kind: "unusable",
        reason: `the node's certificate expired ${Math.ceil((at - facts.notAfterMs) / hourMs)} hours ago: empty the data directory and join again`,
      };
    }
    this.#current = { rootPem, certificatePem, keyPem: decode(key), facts };
    return { kind: "held", identity: this.#current };
  }

  /** Whether the current certificate chains to that root, ignoring this machine's clock: the root is not offered again soon. */
  vouchesFor(rootPem: string): boolean {
    const facts = this.#current?.facts;
    return facts !== undefined && isInForce(facts, rootPem, Math.min(this.#ports.clock.now(), facts.notAfterMs));
  }

  /** Makes `next` of the current identity durable, then current; null changes nothing. Rejects as the disk does. C2 */
  write(next: (held: Identity | null) => TlsMaterial | null): Promise<void> {
    const writing = this.#writing.then(async () => {
      const material = next(this.#current);
      if (material === null) return;
      const { rootPem, certificatePem, keyPem } = material;
      const facts = this.#ports.certificates.describe(certificatePem, rootPem);
      assert(facts.kind === "certificate", "C2: a certificate that was read once can be read again");
      await this.#ports.disk.save(
        record,
        AgentIdentity.encode(
          AgentIdentity.create({ root: encode(rootPem), certificate: encode(certificatePem), key: encode(keyPem) }),
        ),
      );
      this.#current = { rootPem, certificatePem, keyPem, facts };
    });
    this.#writing = writing.catch(() => {});
    return writing;
  }
}
