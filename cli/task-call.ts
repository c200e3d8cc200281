/** The commands' side of a call of a running task: its answers, in order, and what is sent to it. */
import {
  TaskAccessService,
  TaskCallRequest,
  TaskInput,
  type TaskAnswer,
  type TaskCallEnd,
} from "../proto/gen/messages.ts";
import type { ReceivingCall, RpcChannel } from "../runtime/rpc.ts";

export interface TaskCallReceiver {
  /** What it resolves is waited for before more is read. */
  onAnswer(answer: TaskAnswer): Promise<void> | null;
  /** Input may be sent from now on. */
  onBegun?(input: (input: Partial<TaskInput>) => Promise<void>): void;
}

/** Resolves with how it ended; rejects with RpcError when it could not be done. `signal`: gives it up, and resolves null. */
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
