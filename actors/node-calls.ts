/**
 * The streams that nodes keep open at this manager: one on which a node hears questions, and one for each of its answers. Its
 * users are the calls to tasks (`task-calls.ts`) and the live feed (`inspection/`).
 *
 * NC1: a node's answers reach only the asker of their question, and count as that node's.
 * NC2: the next answer is read when the asker has taken the one before.
 */
import {
  InspectionAnswerResponse,
  TaskAnswerResponse,
  type InspectionAnswer,
  type NodeQuestion,
  type TaskAnswer,
  type TaskCallsService,
} from "../proto/gen/messages.ts";
import type { Subscription } from "../runtime/ports/index.ts";
import { RpcError, Status, type CallContext, type ServiceHandlers, type Sink } from "../runtime/ports/rpc.ts";
import type { Running } from "./environment.ts";

/** Takes the answers to one question. A `take` that resolves to false ends the node's stream. */
export interface Asker {
  readonly task?: (answer: TaskAnswer) => Promise<boolean>;
  readonly inspection?: (answer: InspectionAnswer) => Promise<boolean>;
  /** No answers follow. */
  readonly onOver?: () => void;
}

/** Called when a node begins to listen; the result, when that stream has ended. */
type Watcher = (nodeId: string) => () => void;

interface Listener {
  readonly sink: Sink<NodeQuestion>;
  readonly watchers: Map<Watcher, () => void>;
  /** By call id. */
  readonly askers: Map<string, Asker>;
}

export interface NodeCalls extends Running {
  readonly handlers: ServiceHandlers<typeof TaskCallsService>;
  /** Ids of the nodes that listen here: agents of Muster, not engines. */
  listening(): Iterable<string>;
  /**
   * Sends a question that begins a call, with its asker, or continues one. False: the node does not listen here, or the call is
   * not in progress. A question that cancels its call ends it here at once: an agent that never answered would never end it. It is
   * sent even if the call is over here: when the asker leaves while an answer is on its way, the stream of answers ends first.
   */
  ask(nodeId: string, question: NodeQuestion, asker?: Asker): boolean;
  isInProgress(nodeId: string, callId: string): boolean;
  /** Also for the nodes that listen already. */
  onListening(watcher: Watcher): Subscription;
}

export function createNodeCalls(): NodeCalls {
  const listeners = new Map<string, Listener>();
  const watchers = new Set<Watcher>();

  function listen(sink: Sink<NodeQuestion>, call: CallContext): void {
    const nodeId = callerOf(call);
    // The newest stream wins: the earlier one belongs to a previous session.
    listeners.get(nodeId)?.sink.end(new RpcError(Status.ABORTED, "replaced by a newer stream of this node"));
    const listener: Listener = { sink, askers: new Map(), watchers: new Map() };
    listeners.set(nodeId, listener);
    for (const watcher of watchers) listener.watchers.set(watcher, watcher(nodeId));
    const end = (): void => {
      if (listeners.get(nodeId) === listener) listeners.delete(nodeId);
      for (const ended of listener.watchers.values()) ended();
      for (const { onOver } of listener.askers.values()) onOver?.();
    };
    if (call.signal.aborted) end();
    else call.signal.addEventListener("abort", end, { once: true });
  }

  /** NC1, NC2 */
  async function read<Answer extends { readonly callId: string }>(
    answers: AsyncIterable<Answer>,
    call: CallContext,
    takerOf: (asker: Asker) => ((answer: Answer) => Promise<boolean>) | undefined,
  ): Promise<void> {
    const listener = listeners.get(callerOf(call));
    let callId = "";
    try {
      for await (const each of answers) {
        if (callId !== "" && each.callId !== callId)
          throw new RpcError(
            Status.INVALID_ARGUMENT,
            "one stream of answers belongs to one call: open another for the next",
          );
        callId = each.callId;
        const asker = listener?.askers.get(callId);
        const take = asker === undefined ? undefined : takerOf(asker);
        if (take === undefined) throw new RpcError(Status.NOT_FOUND, "call not found");
        if (!(await take(each))) throw new RpcError(Status.CANCELLED, "the caller is gone");
      }
    } finally {
      const asker = listener?.askers.get(callId);
      listener?.askers.delete(callId);
      asker?.onOver?.();
    }
  }

  return {
    handlers: {
      Listen: (_, sink, call) => listen(sink, call),
      async Answer(requests, call) {
        await read(requests, call, ({ task }) => task);
        return TaskAnswerResponse.create();
      },
      async Inspect(requests, call) {
        await read(requests, call, ({ inspection }) => inspection);
        return InspectionAnswerResponse.create();
      },
    },
    listening: () => listeners.keys(),
    ask(nodeId, question, asker) {
      const listener = listeners.get(nodeId);
      if (listener === undefined) return false;
      if (asker !== undefined) listener.askers.set(question.callId, asker);
      else if (!question.cancel && !listener.askers.has(question.callId)) return false;
      listener.sink.write(question);
      if (question.cancel) listener.askers.delete(question.callId);
      return true;
    },
    isInProgress: (nodeId, callId) => listeners.get(nodeId)?.askers.has(callId) === true,
    onListening(watcher) {
      watchers.add(watcher);
      for (const [nodeId, listener] of listeners) listener.watchers.set(watcher, watcher(nodeId));
      return {
        unsubscribe: () => {
          watchers.delete(watcher);
          for (const listener of listeners.values()) listener.watchers.delete(watcher);
        },
      };
    },
    stop() {
      for (const { sink } of listeners.values()) sink.end(new RpcError(Status.UNAVAILABLE, "the manager is stopping"));
    },
  };
}

function callerOf({ peer }: CallContext): string {
  if (peer.identity === null) throw new RpcError(Status.PERMISSION_DENIED, "permission denied: this call is for nodes");
  return peer.identity.nodeId;
}
