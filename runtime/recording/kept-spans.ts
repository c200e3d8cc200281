/** Spans by id, for the steps that were taken in them; the oldest are dropped. */
import { RecordedSpan } from "../../proto/gen/messages.ts";

/** Encoded. About a tenth of the steps' memory. */
const spanBytesMax = 32 * 1024 * 1024;
/** An entry of the table with its key. */
const entryBytes = 120;

export class KeptSpans {
  readonly #spans = new Map<string, Uint8Array>();
  #bytes = 0;

  get memoryBytes(): number {
    return this.#bytes;
  }

  add(span: RecordedSpan): void {
    if (this.#spans.has(span.spanId)) return;
    const encoded = RecordedSpan.encode(span);
    this.#spans.set(span.spanId, encoded);
    this.#bytes += encoded.length + entryBytes;
    for (const [id, { length }] of this.#spans) {
      if (this.#bytes <= spanBytesMax) return;
      this.#spans.delete(id);
      this.#bytes -= length + entryBytes;
    }
  }

  find(spanId: string): RecordedSpan | null {
    const found = this.#spans.get(spanId);
    return found === undefined ? null : RecordedSpan.decode(found);
  }
}
