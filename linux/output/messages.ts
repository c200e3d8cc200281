/** The protocol between an agent and its output collector: one JSON object per line. */
import type { Socket } from "node:net";
import type { TaskOutput } from "./collector.ts";

export type OutputQuestion =
  | { readonly id: number; readonly kind: "open"; readonly output: TaskOutput }
  | { readonly id: number; readonly kind: "drain"; readonly taskId: string; readonly timeoutMs: number }
  /** The agent exits. If nothing is open, there is no answer: the collector has exited. */
  | { readonly id: number; readonly kind: "leave" };

export interface OutputAnswer {
  readonly id: number;
  /** Null on success. */
  readonly error: string | null;
}

/** Calls back with each whole line. Both ends are ours, so the length of a line is not limited. */
export function lines(socket: Socket, onLine: (line: string) => void): void {
  let rest = "";
  socket.setEncoding("utf8");
  socket.on("data", (text: string) => {
    const parts = (rest + text).split("\n");
    rest = parts.pop() as string;
    for (const line of parts) onLine(line);
  });
}
