/**
 * Invariants of a node's assignments, in addition to `invariants.ts`.
 *
 * S51: assignments of a node never go back to an earlier version, whichever managers send them and however far these lag
 *      behind the log.
 */
import { AssignmentsMessage, DispatcherService } from "../../proto/gen/messages.ts";
import type { RpcChannel, Sink } from "../../runtime/ports/rpc.ts";
import type { Store } from "../../runtime/store/store.ts";

/** The manager's side: puts the version into the name of each message's resulting state, which agents only compare. */
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

/** The agents' side, for one node through all its lives. */
export class AssignedVersions {
  readonly #node: string;
  readonly #onWrong: (claim: string) => void;
  #newest = 0;
  /** Address of the manager that sent the last assignments. */
  from = "";

  constructor(node: string, onWrong: (claim: string) => void) {
    this.#node = node;
    this.#onWrong = onWrong;
  }

  /** The same channel, with every assignments message checked. */
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
