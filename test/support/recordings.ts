/** Recordings as a manager makes them, of parts that a test chooses. */
import { createKeyAndCsr, createRoot, issue } from "../../lib/pki/index.ts";
import { RecordingHead, RecordingPart, type ActorFeed } from "../../proto/gen/messages.ts";
import { formatVersion, recordingFile } from "../../runtime/recording/format.ts";
import { Seal, type RecordingSigner } from "../../runtime/recording/seal.ts";

export const recordedCluster = "cluster1";

export async function createSigner(
  fields: { readonly role?: "swarm-manager" | "swarm-worker"; readonly organization?: string } = {},
): Promise<RecordingSigner> {
  const root = await createRoot();
  const { keyPem, csrPem } = await createKeyAndCsr();
  const certificatePem = await issue({
    csrPem,
    rootCertificatePem: root.certificatePem,
    rootKeyPem: root.keyPem,
    nodeId: "m1",
    role: "swarm-manager",
    organization: recordedCluster,
    validitySeconds: 7_776_000,
    nowMs: Date.now(),
    ...fields,
  });
  return { certificatePem, keyPem, rootPem: root.certificatePem };
}

export function headPart(fields: Partial<RecordingHead> = {}): RecordingPart {
  const now = Date.now();
  const head = { format: formatVersion, version: "1.0.0", clusterId: recordedCluster, fromMs: now - 60_000, toMs: now };
  return RecordingPart.create({ head: RecordingHead.create({ ...head, ...fields }) });
}

export const feedParts = (feeds: Iterable<ActorFeed>): RecordingPart[] =>
  Array.from(feeds, (feed) => RecordingPart.create({ feed }));

/** Encoded, with the last one. */
export function sealedParts(
  parts: Iterable<RecordingPart>,
  signer: RecordingSigner | null,
  missing: readonly string[] = [],
): Uint8Array[] {
  const seal = new Seal();
  const encoded = Array.from(parts, (part) => RecordingPart.encode(part));
  for (const part of encoded) seal.add(part);
  return [...encoded, RecordingPart.encode(RecordingPart.create({ end: seal.end(missing, signer) }))];
}

export async function* inOrder<T>(items: Iterable<T>): AsyncGenerator<T> {
  yield* items;
}

export async function fileOf(encodedParts: Iterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of recordingFile(inOrder(encodedParts))) chunks.push(chunk);
  return Buffer.concat(chunks);
}
