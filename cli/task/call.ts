/** Client side of a call to a running task: receives answers in order, sends input. */
import {
  TaskAccessService,
  TaskCallRequest,
  TaskInput,
  type TaskAnswer,
  type TaskCallEnd,
} from "../../proto/gen/messages.ts";
import type { ReceivingCall, RpcChannel } from "../../runtime/ports/rpc.ts";

interface TaskCallReceiver {
  /** The next answer is read after the returned promise resolves. */
  onAnswer(answer: TaskAnswer): Promise<void> | null;
  /** Called when input may be sent. */
  onBegun?(input: (input: Partial<TaskInput>) => Promise<void>): void;
}

/** Resolves with the result; rejects with RpcError on failure. `signal` cancels the call, which then resolves with null. */
export function callTask(
  channel: RpcChannel,
  request: Partial<TaskCallRequest>,
  receiver: TaskCallReceiver,
  signal?: AbortSignal,
): Promise<TaskCallEnd | null> {
  return new Promise((resolve, reject) => {
    let callId = "";
    let sent = 0;
    let end: TaskCallEnd | null = null;
    let printing: Promise<void> = Promise.resolve();
    const input = async (what: Partial<TaskInput>): Promise<void> => {
      sent += 1;
      await channel.unary(TaskAccessService.methods.Send, TaskInput.create({ callId, number: sent, ...what }));
    };
    const call: ReceivingCall = channel.serverStream(TaskAccessService.methods.Call, TaskCallRequest.create(request), {
      onMessage: (answer) => {
        if (callId === "") {
          callId = answer.callId;
          receiver.onBegun?.(input);
          return;
        }
        end = answer.end ?? end;
        const room = receiver.onAnswer(answer);
        if (room === null) return;
        call.pause();
        printing = room.then(() => call.resume());
      },
      onEnd: (error) => void printing.then(() => (error === null ? resolve(end) : reject(error))),
    });
    signal?.addEventListener(
      "abort",
      () => {
        call.cancel();
        resolve(null);
      },
      { once: true },
    );
  });
}
