/** A server stream as an async iterable, which pauses the manager while nobody reads. */
import type { MethodDescriptor } from "../proto/codec.ts";
import type { RpcChannel } from "../runtime/ports/rpc.ts";

/** Messages that wait to be read: the manager is paused beyond. */
const queuedMax = 16;

/** Rejects with the RpcError of the call. A reader that stops cancels it. */
export async function* streamed<Request, Response>(
  channel: RpcChannel,
  method: MethodDescriptor<Request, Response>,
  request: Request,
): AsyncGenerator<Response> {
  const queue: Response[] = [];
  let failed: Error | null = null;
  let isOver = false;
  let isPaused = false;
  let wake = (): void => undefined;
  const call = channel.serverStream(method, request, {
    onMessage(message) {
      queue.push(message);
      if (queue.length >= queuedMax && !isPaused) {
        isPaused = true;
        call.pause();
      }
      wake();
    },
    onEnd(error) {
      failed = error;
      isOver = true;
      wake();
    },
  });
  try {
    for (;;) {
      const message = queue.shift();
      if (message !== undefined) {
        yield message;
        if (isPaused && queue.length < queuedMax / 2) {
          isPaused = false;
          call.resume();
        }
      } else if (failed !== null) throw failed;
      else if (isOver) return;
      else await new Promise<void>((resolve) => (wake = resolve));
    }
  } finally {
    call.cancel();
  }
}
