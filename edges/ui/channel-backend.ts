/** Makes the page's calls over a gRPC connection to a manager, without decoding them. */
import type { WireCodec, WireMethod } from "../../proto/codec.ts";
import type { RpcChannel } from "../../runtime/ports/rpc.ts";
import type { UiBackend } from "./backend.ts";

type Bytes = Uint8Array<ArrayBuffer>;

/** Messages stay encoded: only the page and the manager know their types. */
const raw: WireCodec<Bytes> = { typeName: "message", encode: (bytes) => bytes, decode: (bytes) => bytes as Bytes };

function methodAt(path: string): WireMethod<Bytes, Bytes> {
  return { path, request: raw, response: raw, requestStream: false, responseStream: true };
}

/** Ends with the channel, and closes it. */
export function channelBackend(channel: RpcChannel, endedSentence: string): UiBackend {
  return {
    call: (method, request, sink, { signal, traceparent }) =>
      new Promise((resolve, reject) => {
        const call = channel.serverStream(
          methodAt(method),
          request as Bytes,
          {
            onMessage(message) {
              const room = sink.write(message);
              if (room === null) return;
              call.pause();
              void room.then(() => call.resume());
            },
            onEnd: (error) => (error === null ? resolve() : reject(error)),
          },
          { traceparent },
        );
        const leave = (): void => {
          call.cancel();
          resolve();
        };
        if (signal.aborted) leave();
        else signal.addEventListener("abort", leave, { once: true });
      }),
    onEnded: (listener) => channel.onClosed(() => listener(endedSentence)),
    close: () => channel.close(),
  };
}
