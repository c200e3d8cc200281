/** Calls of the page that are awaited. All end when the connection is lost. */
import { effect } from "@preact/signals";
import type { MethodDescriptor } from "../proto/gen/page.ts";
import { CallError, LostCallError } from "./model/call-error.ts";
import { call, link } from "./state.ts";

/** gRPC statuses that the page handles. */
export const outOfRange = 11;
export const unimplemented = 12;
const unavailable = 14;

/** Streams the responses of a call, until it ends or `signal` is aborted, which cancels it. Throws CallError. */
export function streamed<Request, Response>(
  method: MethodDescriptor<Request, Response>,
  request: Request,
  onMessage: (response: Response) => void,
  signal: AbortSignal,
): Promise<void> {
  return new Promise((resolve, reject) => {
    if (link.peek().state !== "live") {
      reject(new CallError(unavailable, "the page is not connected"));
      return;
    }
    const cancel = call(method, request, {
      onMessage,
      onEnd(status, error) {
        settle();
        if (status === 0) resolve();
        else reject(new CallError(status, error));
      },
    });
    const stop = (): void => {
      settle();
      cancel();
      reject(new CallError(1, "cancelled"));
    };
    const unlink = effect(() => {
      if (link.value.state === "live") return;
      settle();
      reject(new LostCallError(unavailable, "the connection was lost"));
    });
    function settle(): void {
      signal.removeEventListener("abort", stop);
      // Not within the effect that it ends.
      queueMicrotask(() => unlink());
    }
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop);
  });
}

/** The response of a call. Throws CallError. */
export async function asked<Request, Response>(
  method: MethodDescriptor<Request, Response>,
  request: Request,
  signal: AbortSignal,
): Promise<Response> {
  let found: Response | null = null;
  await streamed(method, request, (response) => (found = response), signal);
  if (found === null) throw new CallError(unavailable, "the call ended without a response");
  return found;
}
