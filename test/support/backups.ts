/** Backups of a test's manager, made by the code of a real one, and as files. */
import type { TestManager } from "./manager.ts";
import { backupParts, type BackupSources } from "../../actors/backup/parts.ts";
import { Annotations, BackupPart, Cluster, ClusterSpec } from "../../proto/gen/messages.ts";
import { backupFile } from "../../runtime/backup/format.ts";
import type { Wrapping } from "../../runtime/backup/envelope.ts";
import { Seal, type RecordingSigner } from "../../runtime/recording/seal.ts";
import { createSigner, inOrder, recordedCluster } from "./recordings.ts";
import { testManager } from "./manager.ts";
import { retainedOf, type TestLog } from "./retained.ts";

export interface BackupWorld {
  readonly manager: TestManager;
  readonly retained: TestLog;
  readonly signer: RecordingSigner;
  readonly sources: BackupSources;
  /** All parts; advances the clock. Rejects as the manager does. */
  take(history?: boolean): Promise<BackupPart[]>;
}

/** A manager of a cluster that has its cluster object. */
export async function backupWorld(): Promise<BackupWorld> {
  const manager = testManager("m1");
  const retained = retainedOf(manager);
  const signer = await createSigner();
  const { clock, env, store } = manager;
  const sources: BackupSources = {
    env,
    replica: store,
    clock,
    telemetry: env.telemetry,
    log: retained.log,
    blobs: retained.blobs,
    signer: () => signer,
  };
  const spec = ClusterSpec.create({ annotations: Annotations.create({ name: "default" }) });
  manager.seed("cluster", Cluster.create({ id: recordedCluster, spec }));
  return {
    manager,
    retained,
    signer,
    sources,
    async take(history = false) {
      const parts: BackupPart[] = [];
      const outcome: { error?: unknown; isOver: boolean } = { isOver: false };
      const taking = async (): Promise<void> => {
        const { signal } = new AbortController();
        for await (const part of backupParts(sources, { history, signal })) parts.push(part);
      };
      void taking()
        .catch((error: unknown) => (outcome.error = error))
        .finally(() => (outcome.isOver = true));
      await clock.run({ until: () => outcome.isOver });
      if (outcome.error !== undefined) throw outcome.error as Error;
      return parts;
    },
  };
}

/** The file with these parts. */
export async function backupBytes(parts: Iterable<BackupPart>, wrapping: Wrapping): Promise<Buffer> {
  const encoded = Array.from(parts, (part) => BackupPart.encode(part));
  const chunks: Uint8Array[] = [];
  for await (const chunk of backupFile(inOrder(encoded), wrapping)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** The same parts with an end that fits them. */
export function sealedAgain(parts: readonly BackupPart[], signer: RecordingSigner | null): BackupPart[] {
  const seal = new Seal("muster backup");
  const rest = parts.filter(({ end }) => end === null);
  for (const part of rest) seal.add(BackupPart.encode(part));
  return [...rest, BackupPart.create({ end: seal.end([], signer) })];
}
