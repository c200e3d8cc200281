/** Makes a whole recording of what Recent reads: with a head, and sealed by this manager. */
import { version } from "../../lib/version.ts";
import { RecordingHead, RecordingPart, type RecentActorsRequest } from "../../proto/gen/messages.ts";
import type { Sink } from "../../runtime/ports/rpc.ts";
import { formatVersion } from "../../runtime/recording/format.ts";
import { Seal, type RecordingSigner } from "../../runtime/recording/seal.ts";
import type { Environment } from "../environment.ts";

/** A sink for the parts that Recent sends, whose last one only says what is missing. */
export function sealing(
  { clock, store }: Pick<Environment, "clock" | "store">,
  request: RecentActorsRequest,
  sink: Sink<RecordingPart>,
  signer: () => RecordingSigner | null,
): Sink<RecordingPart> {
  const seal = new Seal();
  let isBegun = false;
  const send = (part: RecordingPart): void => {
    seal.add(RecordingPart.encode(part));
    sink.write(part);
  };
  // Not before the request is accepted.
  const begin = (): void => {
    if (!isBegun) send(RecordingPart.create({ head }));
    isBegun = true;
  };
  const toMs = clock.now();
  const [cluster] = store.all("cluster");
  const head = RecordingHead.create({
    format: formatVersion,
    version,
    clusterId: cluster?.id ?? "",
    fromMs: request.sinceMs === 0 ? 0 : toMs - request.sinceMs,
    toMs,
    processes: request.selection?.processes ?? [],
  });
  return {
    write(part) {
      begin();
      if (part.end === null) send(part);
      else sink.write(RecordingPart.create({ end: seal.end(part.end.missing, signer()) }));
    },
    end: (...outcome) => sink.end(...outcome),
    bufferedBytes: () => sink.bufferedBytes(),
  };
}
