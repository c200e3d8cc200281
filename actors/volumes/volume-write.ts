/** How the leader writes cluster volumes: each change is decided on the current object. */
import type { Operation, Volume } from "../../proto/gen/messages.ts";
import type { WriteOutcome } from "../../machines/volumes/csi/calls.ts";
import { transact } from "../control/write.ts";
import type { Environment } from "../environment.ts";
import { sentence } from "../sentence.ts";

const nothingToWrite = new Error("nothing to write");

/** `decide` gets the current object and returns null when there is nothing to write. Rejects with RpcError. */
export async function writeVolume(
  env: Environment,
  id: string,
  decide: (volume: Volume) => Operation | null,
): Promise<void> {
  try {
    await transact(env, { traceparent: "" }, () => {
      const volume = env.store.get("volume", id);
      const operation = volume === undefined ? null : decide(volume);
      if (operation === null) throw nothingToWrite;
      return [operation];
    });
  } catch (error) {
    if (error !== nothingToWrite) throw error;
  }
}

/** A chart's write as an event. `stage`: read after the write. */
export async function settled<Stage>(writing: Promise<void>, stage: () => Stage): Promise<WriteOutcome<Stage>> {
  try {
    await writing;
    return { type: "write.settled", stage: stage() };
  } catch (error) {
    return { type: "write.failed", reason: sentence(error), failing: "unclear" };
  }
}
