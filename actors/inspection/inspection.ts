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
  type RecentActorsRequest,
  type RecordingPart,
  type WatchActorsRequest,
} from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import type { Subscription } from "../../runtime/ports/index.ts";
import { RpcError, Status, type CallContext, type ServiceHandlers, type Sink } from "../../runtime/ports/rpc.ts";
import * as subjects from "../../runtime/subjects.ts";
import { busMessage } from "../bus-message.ts";
import type { Environment, Running } from "../environment.ts";
import type { RecordingSigner } from "../../runtime/recording/seal.ts";
import type { NodeCalls } from "../node-calls.ts";
import { sentence } from "../sentence.ts";
import type { KeptRecording } from "./kept-recording.ts";
import { serveFeedLeases } from "./leases.ts";
import type { FeedSources } from "./outlet.ts";
import { serveReadings } from "./readings.ts";
import { RecentCall, type LogRange } from "./recent-call.ts";
import type { ProcessFeed } from "./process-feed.ts";
import { sealing } from "./record.ts";
import { WatchCall } from "./watch-call.ts";

/** Calls of Watch at one manager: each costs a share of every step, here and at every other manager. Beyond: refused. */
export const listenersMax = 64;

/** Calls of Recent at one manager: each may read some MB from every process. Beyond: refused. */
export const recentsMax = 16;

interface Inspection extends Running {
  readonly handlers: ServiceHandlers<typeof InspectionService>;
}

/**
 * `kept`: what this process keeps of its last minutes; null: nothing. `signer`: its certificate and key; null: it has none, and
 * makes recordings without a signature. `logRange`: sends the range of the log; null: recordings have none.
 */
export function createInspection(
  env: Environment,
  own: ProcessFeed,
  nodes: NodeCalls,
  kept: KeptRecording | null = null,
  signer: () => RecordingSigner | null = () => null,
  logRange: LogRange | null = null,
): Inspection {
  const { bus, store, telemetry } = env;
  const sources: FeedSources = { env, ids: env.random.fork("inspection"), own, nodes };
  const calls = new Map<string, { readonly call: WatchCall; readonly sink: Sink<ActorFeed> }>();
  const leases = serveFeedLeases(sources);
  const readings = serveReadings(sources, kept);
  const recents = new Map<RecentCall, Sink<RecordingPart>>();
  const gauge = telemetry.metrics.gauge("muster_feed_listeners", "Listeners of the live feed at this manager.");
  let publications: Subscription | null = null;

  function watch({ selection }: WatchActorsRequest, sink: Sink<ActorFeed>, { signal }: CallContext): void {
    const wanted = checked(selection);
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

  function checked(selection: ActorSelection | null): ActorSelection {
    const wanted = selection ?? ActorSelection.create();
    const problem = selectionProblem(wanted, (kind, id) => store.get(kind, id) !== undefined);
    if (problem !== null) throw new RpcError(Status.INVALID_ARGUMENT, problem);
    return wanted;
  }

  function recent(
    request: RecentActorsRequest,
    sink: Sink<RecordingPart>,
    { signal }: CallContext,
    range: LogRange | null = null,
  ): void {
    checked(request.selection);
    if (recents.size >= recentsMax)
      throw new RpcError(Status.RESOURCE_EXHAUSTED, `this manager already sends recordings to ${recentsMax} clients`);
    if (signal.aborted) return;
    const reader = new RecentCall(env, readings, { id: newId(sources.ids), request, sink, range });
    recents.set(reader, sink);
    const over = (): void => {
      reader.stop();
      recents.delete(reader);
    };
    signal.addEventListener("abort", over, { once: true });
    const fail = (error: unknown): void => {
      telemetry.log.error({ error: sentence(error) }, "cannot send a recording");
      sink.end(new RpcError(Status.INTERNAL, `the manager cannot send the recording: ${sentence(error)}`));
    };
    void reader.run().catch(fail).finally(over);
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
      Recent: (request, sink, call) => recent(request, sink, call),
      Record: (request, sink, call) => recent(request, sealing(env, request, sink, signer), call, logRange),
    },
    stop() {
      for (const [id, { sink }] of calls) {
        end(id);
        sink.end(new RpcError(Status.UNAVAILABLE, "the manager is stopping"));
      }
      for (const [reader, sink] of recents) {
        reader.stop();
        sink.end(new RpcError(Status.UNAVAILABLE, "the manager is stopping"));
      }
      leases.stop();
      readings.stop();
    },
  };
}
