/**
 * ActorStates from encoded ActorSteps, without decoding them: the fields that both have are of the same types, so only their tags
 * differ. A moment of the time line has thousands of states, of which a page draws a few.
 */
import protobuf from "protobufjs/minimal.js";
import "./patches.ts";

type OpenReader = protobuf.Reader & { pos: number; len: number; tag(): number };

const bytesField = 2;
const tagOf = (field: number, type: number): number => (field << 3) | type;

/** Tags of an ActorStep, and of the same fields in an ActorState; event, states, status and timers. */
const movedTags: ReadonlyMap<number, number> = new Map([
  [tagOf(5, bytesField), tagOf(10, bytesField)],
  [tagOf(7, bytesField), tagOf(3, bytesField)],
  [tagOf(8, 0), tagOf(4, 0)],
  [tagOf(13, bytesField), tagOf(8, bytesField)],
]);
const contextTags: ReadonlyMap<number, number> = new Map([[tagOf(12, bytesField), tagOf(7, bytesField)]]);

function move(bytes: Uint8Array, tags: ReadonlyMap<number, number>): Uint8Array {
  const reader = protobuf.Reader.create(bytes) as OpenReader;
  const moved = new Uint8Array(bytes.length);
  let used = 0;
  while (reader.pos < reader.len) {
    const tag = reader.tag();
    const from = reader.pos;
    reader.skipType(tag & 7);
    const as = tags.get(tag);
    if (as === undefined) continue;
    // Both tags are below 128: one byte.
    moved[used] = as;
    moved.set(bytes.subarray(from, reader.pos), used + 1);
    used += 1 + reader.pos - from;
  }
  return moved.subarray(0, used);
}

/** The fields of a step, or of a part of its fields, that a state takes from the step before it. Throws on malformed bytes. */
export const movedFields = (step: Uint8Array): Uint8Array => move(step, movedTags);

/** The context of a step as the field of a state. Throws on malformed bytes. */
export const movedContext = (step: Uint8Array): Uint8Array => move(step, contextTags);

interface StateIdentity {
  readonly actor: string;
  readonly machine: string;
  readonly startedAtMs: number;
  readonly sinceMs: number;
  readonly steps: number;
}

/** The fields of an ActorState that are not those of a step, encoded. */
export function encodedStateIdentity({ actor, machine, startedAtMs, sinceMs, steps }: StateIdentity): Uint8Array {
  const writer = protobuf.Writer.create();
  writer.uint32(tagOf(1, bytesField)).string(actor);
  writer.uint32(tagOf(2, bytesField)).string(machine);
  writer.uint32(tagOf(5, 0)).int64(startedAtMs);
  writer.uint32(tagOf(6, 0)).int64(sinceMs);
  writer.uint32(tagOf(9, 0)).uint64(steps);
  return writer.finish();
}

/** An ActorFeed with a snapshot of encoded states; `feed`: its other fields, encoded. */
export function encodedSnapshotFeed(
  feed: Uint8Array,
  {
    begins,
    ends,
    actors,
  }: { readonly begins: boolean; readonly ends: boolean; readonly actors: readonly Uint8Array[] },
): Uint8Array {
  const writer = protobuf.Writer.create();
  writer.uint32(tagOf(4, bytesField)).fork();
  if (begins) writer.uint32(tagOf(1, 0)).bool(true);
  if (ends) writer.uint32(tagOf(2, 0)).bool(true);
  for (const actor of actors) writer.uint32(tagOf(3, bytesField)).bytes(actor);
  return Buffer.concat([feed, writer.ldelim().finish()]);
}
