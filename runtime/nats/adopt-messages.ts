/**
 * Gives a server that stands alone the messages of a server of a cluster. A server alone rejects streams with three copies (error
 * 10074), but the files with a stream's messages depend only on its name: in a stream of one copy they are valid unchanged.
 */
import { constants } from "node:fs";
import { cp, rm } from "node:fs/promises";
import { messagesFolder } from "./server-files.ts";
import { blobStream, logStream } from "./streams.ts";

/**
 * Copies the log and the snapshots, with their sequences. Both are data dirs of servers that do not run, and the one at `to` has set up
 * its streams. Leases are left out: nobody holds one any more. Throws the file system's errors.
 */
export async function adoptMessages(from: string, to: string): Promise<void> {
  for (const stream of [blobStream, logStream]) {
    const target = messagesFolder(to, stream);
    await rm(target, { recursive: true });
    await cp(messagesFolder(from, stream), target, { recursive: true, mode: constants.COPYFILE_FICLONE });
  }
}
