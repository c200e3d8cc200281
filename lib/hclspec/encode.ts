/** Encodes values as MessagePack, byte for byte as Nomad's encoder does (reference §3.5). */
import { decimalText, exactFloat, type Decimal } from "./decimal.ts";
import { MsgpackWriter } from "./msgpack.ts";
import type { Value } from "./value.ts";
import { compareTexts } from "./value.ts";

const int64Min = -(2n ** 63n);
const int64Max = 2n ** 63n - 1n;

export function encode(value: Value): Uint8Array {
  const writer = new MsgpackWriter();
  write(writer, value);
  return writer.finish();
}

function write(writer: MsgpackWriter, value: Value): void {
  switch (value.kind) {
    case "null":
      return writer.null();
    case "bool":
      return writer.bool(value.is);
    case "string":
      return writer.string(value.text);
    case "number":
      return writeNumber(writer, value.number);
    case "list":
    case "set":
    case "tuple":
      writer.list(value.items.length);
      for (const item of value.items) write(writer, item);
      return;
    case "map":
    case "object":
      writer.map(value.entries.size);
      for (const [key, item] of [...value.entries].toSorted(([left], [right]) => compareTexts(left, right))) {
        writer.string(key);
        write(writer, item);
      }
  }
}

/** A number that is neither an integer nor an exact float64, or is too large, is written as text, as Nomad does. */
function writeNumber(writer: MsgpackWriter, number: Decimal): void {
  if (number.scale === 0 && number.digits >= int64Min && number.digits <= int64Max) {
    writer.integer(number.digits);
    return;
  }
  const float = number.scale === 0 ? null : exactFloat(number);
  if (float === null) writer.string(decimalText(number));
  else writer.float64(float);
}
