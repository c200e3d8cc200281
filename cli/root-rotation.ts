/** Progress of a root rotation as Docker's client shows it: two bars, and the digest of the desired root. */
import { nodeNames } from "../machines/node-names.ts";
import { createHash } from "node:crypto";
import { isIssuedBy } from "../machines/certificates/issuer.ts";
import { isSameBytes } from "../machines/same-message.ts";
import type { Cluster, Node } from "../proto/gen/messages.ts";
import { issuerName } from "../lib/pki/index.ts";

interface RotationProgress {
  /** `sha256:` and hex. */
  readonly digest: string;
  readonly total: number;
  /** Nodes whose certificate is signed by the desired root. */
  readonly renewed: number;
  /** Nodes that trust the desired root; 0 until all have renewed. */
  readonly trusting: number;
  readonly isDone: boolean;
  /** Nodes that have not renewed. */
  readonly behind: readonly Node[];
  /** Their names, separated by commas; empty when all have renewed. */
  readonly waitsFor: string;
}

export function rotationProgress({ rootCa }: Cluster, nodes: readonly Node[]): RotationProgress {
  const rotation = rootCa?.rootRotation ?? null;
  const wanted = rotation?.caCert ?? rootCa?.caCert ?? new Uint8Array();
  const issuer = issuerName(new TextDecoder().decode(wanted));
  const tlsInfo = (node: Node) => node.description?.tlsInfo ?? null;
  const behind = nodes.filter((node) => issuer === null || !isIssuedBy(tlsInfo(node), issuer));
  const trusting = nodes.filter((node) => isSameBytes(tlsInfo(node)?.trustRoot ?? new Uint8Array(), wanted)).length;
  const nameOf = nodeNames(nodes, "all");
  const isSwitched = rotation === null && behind.length === 0;
  return {
    digest: `sha256:${createHash("sha256").update(wanted).digest("hex")}`,
    total: nodes.length,
    renewed: nodes.length - behind.length,
    trusting: isSwitched ? trusting : 0,
    isDone: isSwitched && trusting === nodes.length,
    behind,
    waitsFor: behind.map(({ id }) => nameOf(id)).join(", "),
  };
}

/** Width between the brackets, like Docker's. */
const barWidth = 50;

function bar(label: string, count: number, total: number): string {
  const filled = total === 0 ? barWidth : Math.round((count / total) * barWidth);
  const body = filled === 0 ? "" : `${"=".repeat(filled - 1)}>`;
  return `${label} [${body.padEnd(barWidth)}] ${count}/${total} nodes`;
}

export function rotationLines({ digest, renewed, total, trusting }: RotationProgress): readonly string[] {
  return [
    `desired root digest: ${digest}`,
    bar("  rotated TLS certificates: ", renewed, total),
    bar("  rotated CA certificates:  ", trusting, total),
  ];
}
