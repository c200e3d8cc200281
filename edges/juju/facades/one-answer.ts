/**
 * Reads a stream of the cluster for one reply, until it ends, is complete, or times out. The stream is cancelled then, and when
 * the caller's connection ends.
 */
import type { CallContext, RpcError, Sink } from "../../../runtime/ports/rpc.ts";
import type { Call, FacadeSources } from "../facade.ts";
import { RequestError } from "../request-error.ts";

interface Reading<Message> {
  readonly timeoutMs: number;
  /** May throw RpcError. */
  begin(sink: Sink<Message>, rpc: CallContext): void;
  /** Returns whether the reply is complete. */
  onMessage(message: Message): boolean;
}

/** Rejects with the stream's error, or with RequestError `deadline exceeded`. */
export function readForAnswer<Message>(
  { clock }: Pick<FacadeSources, "clock">,
  { rpc, session }: Call,
  { timeoutMs, begin, onMessage }: Reading<Message>,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const giveUp = new AbortController();
    let isOver = false;
    const settle = (error?: RpcError | RequestError): void => {
      if (isOver) return;
      isOver = true;
      clock.clearTimeout(timer);
      session.signal.removeEventListener("abort", onEnding);
      if (error === undefined) resolve();
      else reject(error);
    };
    const leave = (error?: RequestError): void => {
      settle(error);
      // Not within a message, whose sender is still working on it.
      queueMicrotask(() => giveUp.abort());
    };
    const timer = clock.setTimeout(
      () => leave(new RequestError(`the request did not finish within ${timeoutMs / 1_000} s`, "deadline exceeded")),
      timeoutMs,
    );
    const onEnding = (): void => leave(new RequestError("the connection has ended", "stopped"));
    session.signal.addEventListener("abort", onEnding, { once: true });
    const sink: Sink<Message> = {
      write: (message) => {
        if (!isOver && onMessage(message)) leave();
      },
      end: settle,
      bufferedBytes: () => 0,
    };
    try {
      begin(sink, { ...rpc, signal: giveUp.signal });
    } catch (error) {
      settle(error as RpcError);
    }
  });
}
