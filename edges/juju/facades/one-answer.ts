/**
 * A stream of the cluster read for one answer: until it ends, until there is enough of it, or until it has taken too long.
 * Nothing of it goes on after that, nor after the connection of who asked.
 */
import type { CallContext, RpcError, Sink } from "../../../runtime/rpc.ts";
import type { Call, FacadeSources } from "../facade.ts";
import { RequestError } from "../request-error.ts";

interface Reading<Message> {
  readonly timeoutMs: number;
  /** May throw RpcError. */
  begin(sink: Sink<Message>, rpc: CallContext): void;
  /** Whether it is enough. */
  onMessage(message: Message): boolean;
}

/** Rejects with what the stream ended with, or with RequestError `deadline exceeded`. */
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
      // Not from within a message: whoever sends it is not done with it.
      queueMicrotask(() => giveUp.abort());
    };
    const timer = clock.setTimeout(
      () => leave(new RequestError(`it did not end within ${timeoutMs / 1_000} s`, "deadline exceeded")),
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
