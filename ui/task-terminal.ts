/** A command in a task with a terminal: what it writes, and what is typed (`TaskAccess`). */
import {
  TaskAccessService,
  TaskCallRequest,
  TaskExec,
  TaskInput,
  TaskTerminalSize,
  type TaskAnswer,
  type TaskCallEnd,
} from "../proto/gen/cluster.ts";
import { streamed } from "./asks.ts";
import { unary } from "./cluster-state.ts";
import { CallError, LostCallError } from "./model/call-error.ts";
import { failureText } from "./model/cluster/failures.ts";

interface Size {
  readonly width: number;
  readonly height: number;
}

interface TerminalScreen {
  readonly size: Size;
  write(bytes: Uint8Array): void;
  onInput(listener: (bytes: Uint8Array) => void): void;
  onResize(listener: (size: Size) => void): void;
  close(): void;
}

export interface TerminalSession {
  close(): void;
}

/** Maximum input per message, in bytes, as `TaskInput` says. */
const inputBytesMax = 64 * 1024;

function endText(end: TaskCallEnd | null): string {
  if (end === null) return "The command has ended.";
  if (end.status !== 0) return failureText("run the command", new CallError(end.status, end.message));
  return end.signal === 0
    ? `The command has ended with exit code ${end.exitCode}.`
    : `The command was ended by signal ${end.signal}.`;
}

export function openTerminal(
  taskId: string,
  command: readonly string[],
  screen: TerminalScreen,
  onEnd: (text: string) => void,
): TerminalSession {
  const controller = new AbortController();
  let callId = "";
  let sent = 0;
  let end: TaskCallEnd | null = null;
  /** One input at a time: the next waits until the driver has it. */
  let sending: Promise<unknown> = Promise.resolve();
  /** Input from before the command began. */
  const early: Partial<TaskInput>[] = [];
  const send = (input: Partial<TaskInput>): void => {
    if (callId === "") {
      early.push(input);
      return;
    }
    // Input that the command no longer accepts can be dropped: its end is on the way.
    sending = sending
      .then(() => unary(TaskAccessService.methods.Send, TaskInput.create({ callId, number: (sent += 1), ...input })))
      .catch(() => undefined);
  };
  screen.onInput((bytes) => {
    for (let at = 0; at < bytes.length; at += inputBytesMax) send({ data: bytes.subarray(at, at + inputBytesMax) });
  });
  screen.onResize((size) => send({ size: TaskTerminalSize.create(size) }));
  const onAnswer = (answer: TaskAnswer): void => {
    if (callId === "") {
      ({ callId } = answer);
      for (const input of early.splice(0)) send(input);
      return;
    }
    if (answer.stdout.length > 0) screen.write(answer.stdout);
    if (answer.stderr.length > 0) screen.write(answer.stderr);
    end = answer.end ?? end;
  };
  const exec = TaskExec.create({ command, tty: true, size: TaskTerminalSize.create(screen.size) });
  const request = TaskCallRequest.create({ taskId, exec });
  streamed(TaskAccessService.methods.Call, request, onAnswer, controller.signal).then(
    () => onEnd(endText(end)),
    (error: unknown) => {
      if (controller.signal.aborted) return;
      const isLost = error instanceof LostCallError;
      onEnd(isLost ? "The connection was lost, and the command with it." : failureText("run the command", error));
    },
  );
  return {
    close() {
      controller.abort();
      screen.close();
    },
  };
}
