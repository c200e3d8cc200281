/** Decodes the messages that handlers receive from the bus. Another version of Muster may send what this one cannot decode. */
import { decodedOrNull, type WireCodec } from "../proto/codec.ts";
import { ManagerBeat } from "../proto/gen/messages.ts";
import { BusRefusals } from "../runtime/bus-refusals.ts";
import type { BusMessage } from "../runtime/ports/index.ts";
import type { Environment } from "./environment.ts";

/** Null for bytes that cannot be decoded; they are counted as `malformed`. */
export function busMessage<Message>(
  { clock, telemetry }: Pick<Environment, "clock" | "telemetry">,
  codec: WireCodec<Message>,
  { data, subject }: Pick<BusMessage, "data" | "subject">,
): Message | null {
  const message = decodedOrNull(codec, data);
  if (message === null) BusRefusals.of(telemetry, clock).add(subject, "malformed");
  return message;
}

/** The last beat. Several parts of a manager hear each, one after another. */
let last: { readonly data: Uint8Array; readonly beat: ManagerBeat | null } | null = null;

/** Like `busMessage`, for the beat of a manager: decoded, and counted if it cannot be, once for all who hear it. */
export function managerBeatOf(
  env: Pick<Environment, "clock" | "telemetry">,
  message: Pick<BusMessage, "data" | "subject">,
): ManagerBeat | null {
  const { data } = message;
  if (last?.data !== data) last = { data, beat: busMessage(env, ManagerBeat, message) };
  return last.beat;
}
