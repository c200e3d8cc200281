/**
 * The Inspection service of every manager: the live feed of the actors of all managers and of the agents that can be reached.
 *
 * A listener's manager (its home) takes a lease of each other manager's feed; each manager publishes its own and those of the
 * agents whose sessions it has, and only while it holds a lease.
 */
import { selectionProblem } from "../../machines/inspection/selection.ts";
import {
  ActorSelection,
  FeedPublication,
  type ActorFeed,
  type InspectionService,
  type WatchActorsRequest,
} from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import type { Subscription } from "../../runtime/ports/index.ts";
import { RpcError, Status, type CallContext, type ServiceHandlers, type Sink } from "../../runtime/ports/rpc.ts";
import * as subjects from "../../runtime/subjects.ts";
import { busMessage } from "../bus-message.ts";
import type { Environment, Running } from "../environment.ts";
import type { NodeCalls } from "../node-calls.ts";
import { serveFeedLeases } from "./leases.ts";
import type { FeedSources } from "./outlet.ts";
import type { ProcessFeed } from "./process-feed.ts";
import { WatchCall } from "./watch-call.ts";

/** Calls of Watch at one manager: each costs a share of every step, here and at every other manager. Beyond: refused. */
export const listenersMax = 64;

export interface Inspection extends Running {
  readonly handlers: ServiceHandlers<typeof InspectionService>;
}

export function createInspection(env: Environment, own: ProcessFeed, nodes: NodeCalls): Inspection {
  const { bus, store, telemetry } = env;
  const sources: FeedSources = { env, ids: env.random.fork("inspection"), own, nodes };
  const calls = new Map<string, { readonly call: WatchCall; readonly sink: Sink<ActorFeed> }>();
  const leases = serveFeedLeases(sources);
  const gauge = telemetry.metrics.gauge("muster_feed_listeners", "Listeners of the live feed at this manager.");
  let publications: Subscription | null = null;

  function watch({ selection }: WatchActorsRequest, sink: Sink<ActorFeed>, { signal }: CallContext): void {
    const wanted = selection ?? ActorSelection.create();
    const problem = selectionProblem(wanted, (kind, id) => store.get(kind, id) !== undefined);
    if (problem !== null) throw new RpcError(Status.INVALID_ARGUMENT, problem);
    if (calls.size >= listenersMax)
      throw new RpcError(
        Status.RESOURCE_EXHAUSTED,
        `this manager already feeds ${listenersMax} listeners: close one, or ask another manager`,
      );
    if (signal.aborted) return;
    const id = newId(sources.ids);
    publications ??= bus.subscribe(subjects.feedPublications, (message) => {
      const publication = busMessage(env, FeedPublication, message);
      if (publication !== null) calls.get(publication.listener)?.call.take(publication, message.data.length);
    });
    calls.set(id, { call: new WatchCall(sources, { id, selection: wanted, sink }), sink });
    gauge.set(calls.size);
    signal.addEventListener("abort", () => end(id), { once: true });
  }

  function end(id: string): void {
    calls.get(id)?.call.stop();
    calls.delete(id);
    gauge.set(calls.size);
    if (calls.size > 0) return;
    publications?.unsubscribe();
    publications = null;
  }

  return {
    handlers: {
      Watch: watch,
      Recent: () => {
        throw new RpcError(Status.UNIMPLEMENTED, "this manager keeps no recordings");
      },
    },
    stop() {
      for (const [id, { sink }] of calls) {
        end(id);
        sink.end(new RpcError(Status.UNAVAILABLE, "the manager is stopping"));
      }
      leases.stop();
    },
  };
}
