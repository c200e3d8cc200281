/**
 * A serving driver's standard output goes to its host over gRPC (GRPCStdio), not to the descriptor: the host has read its one
 * line from there and may have stopped reading. There is one reader; until it connects, the last bytes are kept.
 */
import { StdioData, StdioData_Channel } from "../../../proto/gen/nomad.ts";
import type { CallContext, Sink } from "../../../runtime/ports/rpc.ts";

/** Bytes kept before a reader connects, the oldest dropped first. A slow reader misses the newest. */
const keptBytesMax = 64 * 1024;
/** The size of the pieces that Go plugins send. */
const pieceBytes = 1_024;

export class PluginStdio {
  #sink: Sink<StdioData> | null = null;
  readonly #kept: StdioData[] = [];
  #keptBytes = 0;

  /** From now on, captures everything written to standard output. */
  capture(): void {
    process.stdout.write = ((
      chunk: string | Uint8Array,
      encoding?: BufferEncoding | ((error?: Error) => void),
      done?: (error?: Error) => void,
    ): boolean => {
      const text = typeof encoding === "string" ? encoding : "utf8";
      this.#push(typeof chunk === "string" ? Buffer.from(chunk, text) : chunk);
      const callback = typeof encoding === "function" ? encoding : done;
      if (callback !== undefined) queueMicrotask(callback);
      return true;
    }) as typeof process.stdout.write;
  }

  stream(sink: Sink<StdioData>, call: CallContext): void {
    this.#sink?.end();
    this.#sink = sink;
    call.signal.addEventListener("abort", () => {
      if (this.#sink === sink) this.#sink = null;
    });
    for (const piece of this.#kept.splice(0)) sink.write(piece);
    this.#keptBytes = 0;
  }

  #push(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; at += pieceBytes) {
      const data = Uint8Array.from(bytes.subarray(at, at + pieceBytes));
      const piece = StdioData.create({ channel: StdioData_Channel.STDOUT, data });
      if (this.#sink !== null) {
        if (this.#sink.bufferedBytes() < keptBytesMax) this.#sink.write(piece);
        continue;
      }
      this.#kept.push(piece);
      this.#keptBytes += data.length;
      while (this.#keptBytes > keptBytesMax) this.#keptBytes -= this.#kept.shift()?.data.length ?? 0;
    }
  }
}
