/** What an agent and the process that keeps its tasks' output say to each other: a JSON object on each line. */
import type { Socket } from "node:net";
import type { TaskOutput } from "./collector.ts";

export type OutputQuestion =
  | { readonly id: number; readonly kind: "open"; readonly output: TaskOutput }
  | { readonly id: number; readonly kind: "drain"; readonly taskId: string; readonly timeoutMs: number }
  /** An agent ends. Where nothing is open any more there is no answer: the process is gone. */
  | { readonly id: number; readonly kind: "leave" };

export interface OutputAnswer {
  readonly id: number;
  /** Null: done. */
  readonly error: string | null;
}

/** Calls back with each whole line. Both ends are ours, so a line has no limit. */
export function lines(socket: Socket, onLine: (line: string) => void): void {
  let rest = "";
  socket.setEncoding("utf8");
  socket.on("data", (text: string) => {
    const parts = (rest + text).split("\n");
    rest = parts.pop() as string;
    for (const line of parts) onLine(line);
  });
}
