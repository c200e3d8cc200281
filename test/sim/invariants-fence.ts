/**
 * What must hold of a node's session with a manager, beside `invariants-sessions.ts`.
 *
 * S122: a manager accepts no call of a session, and writes nothing to its streams, once it has given the node another one, or
 *      its replica of the log has given the node to another manager.
 */
import type { DispatcherService, Session } from "../../proto/gen/messages.ts";
import type { CallContext, ServiceHandlers, Sink } from "../../runtime/rpc.ts";

type Handlers = ServiceHandlers<typeof DispatcherService>;

export interface FencedParts {
  readonly handlers: Handlers;
  /** The node's session as this manager's replica has it. */
  readonly recordOf: (nodeId: string) => Session | undefined;
  readonly onWrong: (claim: string) => void;
}

/** The handlers of one life of a manager, of which every call that names a session is looked at. */
export function fenced({ handlers, onWrong, recordOf }: FencedParts): Handlers {
  /** By node: the session that it was given last, as far as it was told. */
  const given = new Map<string, string>();
  const nodeOf = ({ peer }: CallContext): string => peer.identity?.nodeId ?? "";
  const objection = (nodeId: string, sessionId: string): string | null => {
    const last = given.get(nodeId);
    // One of an earlier life of this manager, of which nobody was told in this one.
    if (last === undefined) return null;
    if (last !== sessionId) return `which has been given session ${last}`;
    const record = recordOf(nodeId);
    if (record === undefined || record.sessionId === sessionId) return null;
    return `which the log gives session ${record.sessionId} at manager ${record.managerId}`;
  };
  const look = (call: CallContext, sessionId: string, what: string): void => {
    const why = objection(nodeOf(call), sessionId);
    if (why !== null) onWrong(`S122: ${what} session ${sessionId} of node ${nodeOf(call)}, ${why}`);
  };
  /** `before`: called with each message. */
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
    // What is refused is thrown before anything is awaited.
    Heartbeat: (request, call) => {
      const answer = handlers.Heartbeat(request, call);
      look(call, request.sessionId, "a heartbeat is accepted of");
      return answer;
    },
    UpdateTaskStatus: (request, call) => {
      const answer = handlers.UpdateTaskStatus(request, call);
      look(call, request.sessionId, "a report is accepted of");
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
