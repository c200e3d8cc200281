/** A call to a running task, wherever its node is, on behalf of a client of the Engine API. */
import {
  TaskAccessService,
  TaskCallRequest,
  TaskInput,
  type TaskAnswer,
  type TaskCallEnd,
} from "../../proto/gen/messages.ts";
import type { CallSignal } from "../../runtime/ports/rpc.ts";
import type { OwnCalls } from "../grpc/own-calls.ts";
import type { SendInput } from "./execs.ts";

const { methods } = TaskAccessService;

interface TaskCallUser {
  onAnswer(answer: TaskAnswer): void;
  /** Bytes that wait for the client: its node is slowed down beyond some 256 KiB. */
  waitingBytes(): number;
}

interface BegunTaskCall {
  readonly send: SendInput;
  /** Rejects with RpcError. Null if the call ended without an outcome. */
  readonly ended: Promise<TaskCallEnd | null>;
}

/** Resolves when the manager has accepted the call, but maybe not yet the node. Rejects with RpcError. `signal` cancels it. */
export function callTask(
  calls: OwnCalls,
  request: Partial<TaskCallRequest>,
  user: TaskCallUser,
  signal: CallSignal,
): Promise<BegunTaskCall> {
  return new Promise((resolve, reject) => {
    const ended = Promise.withResolvers<TaskCallEnd | null>();
    // The error of a call that never began is in `reject`.
    ended.promise.catch(() => undefined);
    let callId = "";
    let sent = 0;
    let end: TaskCallEnd | null = null;
    const send: SendInput = async (input) => {
      sent += 1;
      await calls.unary(methods.Send, TaskInput.create({ callId, number: sent, ...input }));
    };
    calls.stream(
      methods.Call,
      TaskCallRequest.create(request),
      {
        write(answer) {
          if (callId === "") {
            callId = answer.callId;
            resolve({ send, ended: ended.promise });
            return;
          }
          end = answer.end ?? end;
          user.onAnswer(answer);
        },
        end(error) {
          if (error === undefined) ended.resolve(end);
          else ended.reject(error);
          reject(error ?? new Error("the call ended before it began"));
        },
        bufferedBytes: () => user.waitingBytes(),
      },
      signal,
    );
  });
}

/** For a shell: 128 and the number of the signal that ended the command, or its own status. */
export function exitStatus({ exitCode, signal }: TaskCallEnd): number {
  return exitCode !== 0 || signal === 0 ? exitCode : 128 + signal;
}
