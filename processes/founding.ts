/** Parts of founding a cluster again on one manager: from a backup, or from its own copy of a log that lost its majority. */
import { readdirSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { Cause, LogMark, Origin, Transaction, type Change } from "../proto/gen/messages.ts";
import { timestampOf } from "../proto/time.ts";
import type { beginStreams } from "../runtime/nats/begin.ts";
import { connectNats, type NatsLink } from "../runtime/nats/connection.ts";
import type { Telemetry } from "../runtime/ports/index.ts";
import { encodeRecord } from "../runtime/store/record.ts";
import type { Replica } from "../runtime/store/replica.ts";
import type { Vault } from "../runtime/store/vault.ts";
import { MarkFile, markFileName } from "../runtime/system/mark-file.ts";
import { syncFolder } from "../runtime/system/whole-file.ts";
import { startOwnNats } from "./move-own-nats.ts";

/** The record that follows the replica's state in the log of a cluster that is founded again. */
export function recordOfFounding(
  replica: Replica,
  { changes, id, nowMs }: { readonly changes: readonly Change[]; readonly id: string; readonly nowMs: number },
): Uint8Array {
  return encodeRecord(
    Transaction.create({
      id,
      epoch: replica.epoch,
      previous: replica.checksum,
      time: timestampOf(nowMs),
      causes: [Cause.create({ origin: Origin.ORIGIN_BOOTSTRAP })],
      changes,
    }),
  );
}

/** Runs a nats-server alone on the storage in that folder, for the time of `work`. */
export async function withNats<Result>(
  folder: string,
  vault: Vault,
  telemetry: Telemetry,
  work: (link: NatsLink, access: Parameters<typeof beginStreams>[0]) => Promise<Result>,
): Promise<Result> {
  const own = await startOwnNats(folder, vault, { telemetry });
  try {
    const access = { name: "muster-founding", telemetry, ...own.access };
    const link = await connectNats({ ...access, flushesEveryWrite: own.server.flushesEveryWrite });
    try {
      return await work(link, access);
    } finally {
      await link.drain();
    }
  } finally {
    await own.stop();
  }
}

/** Nodes that joined after the backup are recognised by their certificates, as after a loss of records that was accepted. */
export async function acceptLoss(path: string, { checksum, recordSequence: sequence }: Replica): Promise<void> {
  const disk = new MarkFile(join(path, markFileName));
  try {
    await disk.write(LogMark.encode(LogMark.create({ sequence, checksum, lossAccepted: timestampOf(Date.now()) })));
  } finally {
    await disk.close();
  }
}

/** A nats-server may not have synced its files. */
export async function syncTree(path: string): Promise<void> {
  for (const entry of readdirSync(path, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() && !entry.isDirectory()) continue;
    const file = await open(join(entry.parentPath, entry.name), "r");
    try {
      await file.sync();
    } finally {
      await file.close();
    }
  }
  await syncFolder(path);
}
