/**
 * Invariants of a node's session with a manager, in addition to `invariants-sessions.ts`.
 *
 * S122: a manager accepts no call for a session, and writes nothing to its streams, after it has given the node another
 *       session or its replica has assigned the node to another manager.
 */
import type { DispatcherService, Session } from "../../proto/gen/messages.ts";
import type { CallContext, ServiceHandlers, Sink } from "../../runtime/ports/rpc.ts";

type Handlers = ServiceHandlers<typeof DispatcherService>;

interface FencedParts {
  readonly handlers: Handlers;
  /** The node's session in this manager's replica. */
  readonly recordOf: (nodeId: string) => Session | undefined;
  readonly onWrong: (claim: string) => void;
}

/** Wraps the handlers of one life of a manager, to check every call that names a session. */
export function fenced({ handlers, onWrong, recordOf }: FencedParts): Handlers {
  /** By node: the last session that was handed out. */
  const given = new Map<string, string>();
  const nodeOf = ({ peer }: CallContext): string => peer.identity?.nodeId ?? "";
  const objection = (nodeId: string, sessionId: string): string | null => {
    const last = given.get(nodeId);
    // A session from an earlier life of this manager.
    if (last === undefined) return null;
    if (last !== sessionId) return `which has session ${last}`;
    const record = recordOf(nodeId);
    if (record === undefined || record.sessionId === sessionId) return null;
    return `which has session ${record.sessionId} at manager ${record.managerId} in the log`;
  };
  const look = (call: CallContext, sessionId: string, what: string): void => {
    const why = objection(nodeOf(call), sessionId);
    if (why !== null) onWrong(`S122: ${what} session ${sessionId} of node ${nodeOf(call)}, ${why}`);
  };
  /** `before`: called before each message. */
  const telling = <Message>(sink: Sink<Message>, before: (message: Message) => void): Sink<Message> => ({
    write: (message) => {
      before(message);
      sink.write(message);
    },
    end: (error, queued) => sink.end(error, queued),
    bufferedBytes: () => sink.bufferedBytes(),
  });
  return {
    ...handlers,
    Session: (request, sink, call) =>
      handlers.Session(
        request,
        telling(sink, ({ sessionId }) => given.set(nodeOf(call), sessionId)),
        call,
      ),
    // Refusals are thrown before the first await.
    Heartbeat: (request, call) => {
      const answer = handlers.Heartbeat(request, call);
      look(call, request.sessionId, "a heartbeat is accepted for");
      return answer;
    },
    UpdateTaskStatus: (request, call) => {
      const answer = handlers.UpdateTaskStatus(request, call);
      look(call, request.sessionId, "a report is accepted for");
      return answer;
    },
    Assignments: (request, sink, call) =>
      handlers.Assignments(
        request,
        telling(sink, () => look(call, request.sessionId, "assignments are written to")),
        call,
      ),
  };
}
