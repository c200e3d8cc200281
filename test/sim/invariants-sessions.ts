/**
 * What must hold of what a node is told, beside `invariants.ts`.
 *
 * S51: what a node is assigned never is of an earlier version than what it was assigned before, whichever managers it is
 *      with and however far behind the log they are.
 */
import { AssignmentsMessage, DispatcherService } from "../../proto/gen/messages.ts";
import type { RpcChannel, Sink } from "../../runtime/rpc.ts";
import type { Store } from "../../runtime/store/store.ts";

/** The manager's end: the name that each message gives to the state that it makes, which agents only compare, tells its version too. */
export function tellingVersions(sink: Sink<AssignmentsMessage>, store: Store): Sink<AssignmentsMessage> {
  let last = "";
  return {
    write: (message) => {
      const appliesTo = message.appliesTo === "" ? "" : last;
      last = `${message.resultsIn}@${store.version}`;
      sink.write(AssignmentsMessage.patch(message, { appliesTo, resultsIn: last }));
    },
    end: (error, queued) => sink.end(error, queued),
    bufferedBytes: () => sink.bufferedBytes(),
  };
}

/** The agents' end, for one node through all its lives. */
export class AssignedVersions {
  readonly #node: string;
  readonly #onWrong: (claim: string) => void;
  #newest = 0;
  /** Address of the manager whose assignments came last. */
  from = "";

  constructor(node: string, onWrong: (claim: string) => void) {
    this.#node = node;
    this.#onWrong = onWrong;
  }

  /** The same channel, of which every message of assignments is looked at. */
  watching(channel: RpcChannel, manager: string): RpcChannel {
    const { path } = DispatcherService.methods.Assignments;
    return {
      unary: (method, request, options) => channel.unary(method, request, options),
      clientStream: (method) => channel.clientStream(method),
      serverStream: (method, request, receiver) =>
        channel.serverStream(method, request, {
          onMessage: (message) => {
            if (method.path === path) this.#look(message as AssignmentsMessage, manager);
            receiver.onMessage(message);
          },
          onEnd: (error) => receiver.onEnd(error),
        }),
      close: () => channel.close(),
      onClosed: (listener) => channel.onClosed(listener),
    };
  }

  #look({ resultsIn }: AssignmentsMessage, manager: string): void {
    const version = Number(resultsIn.split("@")[1]);
    if (version < this.#newest)
      this.#onWrong(
        `S51: ${this.#node} is assigned what ${manager} has of version ${version}, after version ${this.#newest} of ${this.from}`,
      );
    this.#newest = version;
    this.from = manager;
  }
}
