/** Opens the file of a recording for a command. */
import { createReadStream, statSync } from "node:fs";
import { UserError } from "../../lib/user-error.ts";
import { openRecording, type OpenedRecording } from "../../runtime/recording/opened.ts";
import { PartFileError } from "../../runtime/part-file.ts";

/** A compressed recording has a tenth of its contents; a file as large as this exceeds their limit with certainty. */
const fileBytesMax = 1024 * 1024 * 1024;

/** Rejects with UserError. */
export async function openFile(path: string, isForced: boolean): Promise<OpenedRecording> {
  const cannot = (why: string, cause?: unknown): UserError => new UserError(`cannot open ${path}: ${why}`, { cause });
  let size: number;
  try {
    const stats = statSync(path);
    if (!stats.isFile()) throw cannot("it is not a file");
    ({ size } = stats);
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw cannot((error as NodeJS.ErrnoException).code === "ENOENT" ? "no such file" : (error as Error).message, error);
  }
  if (size > fileBytesMax)
    throw cannot(`it has ${Math.round(size / 2 ** 20)} MiB, but a recording has at most ${fileBytesMax / 2 ** 20} MiB`);
  try {
    return await openRecording(createReadStream(path, { highWaterMark: 1024 * 1024 }), { isForced });
  } catch (error) {
    if (!(error instanceof PartFileError)) throw cannot((error as Error).message, error);
    const isReadable = error.fault === "truncated" || error.fault === "damaged";
    throw cannot(`${error.message}${isReadable ? "; --force opens what can be read of it" : ""}`, error);
  }
}
