/** The input and output of a container's own process, through the engine. Its end does not end the container. */
import type { Attachment, ExecRequest, ExecSession, TaskExit } from "../../edges/plugin/server/index.ts";
import type { Engine } from "./engine.ts";
import { relay } from "./session.ts";

/** Ended or detached: the engine closes the connection the same way, and the container's exit is reported elsewhere. */
const over: TaskExit = { exitCode: 0, signal: 0, oomKilled: false };

interface AttachedContainer {
  readonly id: string;
  readonly hasTerminal: boolean;
  /** Whether its standard input is open. */
  readonly hasInput: boolean;
}

/** Rejects with an error of the engine, such as for detach keys that it does not know, and if the container's input is closed. */
export async function openAttachment(
  engine: Engine,
  { hasInput, hasTerminal, id }: AttachedContainer,
  request: ExecRequest,
  { detachKeys, logs }: Attachment,
): Promise<ExecSession> {
  if (!hasInput) throw new Error("the container has no open standard input (interactive, in Compose files stdin_open)");
  const socket = await engine.upgrade(`/containers/${id}/attach`, undefined, {
    stdin: true,
    stdout: true,
    stderr: true,
    stream: true,
    logs,
    ...(detachKeys === "" ? {} : { detachKeys }),
  });
  return {
    exited: relay(socket, request, hasTerminal).then(() => over),
    write: (bytes) => void socket.write(bytes),
    closeInput: () => void socket.end(),
    resize: ({ columns, rows }) => {
      engine.json("POST", `/containers/${id}/resize`, { query: { h: rows, w: columns } }).catch(() => undefined);
    },
    kill: () => void socket.destroy(),
  };
}
