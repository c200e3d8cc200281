/** The page's calls, answered from a recording instead of a cluster. */
import { timelineServices } from "../../edges/ui/timeline-services.ts";
import { onlyLocal, type CallMethod, type UiBackend } from "../../edges/ui/backend.ts";
import {
  InspectionService,
  LogsService,
  TaskAccessService,
  TimelineAtRequest,
  type ActorFeed,
} from "../../proto/gen/messages.ts";
import type { OpenedRecording } from "../../runtime/recording/opened.ts";
import { recordedCluster } from "./recorded-cluster.ts";
import { actorsAt } from "../../runtime/recording/timeline.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";

const { Watch } = InspectionService.methods;

/** The actors as they were at the end; then nothing, until the page leaves: nothing happens in a recording any more. */
function watch({ index }: OpenedRecording): CallMethod {
  return async (_method, request, sink, { signal }) => {
    const { selection } = Watch.request.decode(request);
    const wanted = selection?.processes ?? [];
    const isWanted = ({ process }: ActorFeed): boolean => wanted.length === 0 || wanted.includes(process);
    if (index.toMs > 0)
      for (const feed of actorsAt(index, TimelineAtRequest.create({ atMs: index.toMs })))
        if (isWanted(feed)) await sink.write(Watch.response.encode(feed));
    await new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      else signal.addEventListener("abort", () => resolve(), { once: true });
    });
  };
}

const refuse =
  (sentence: string): CallMethod =>
  () =>
    Promise.reject(new RpcError(Status.FAILED_PRECONDITION, sentence));

export function recordedBackend(recording: OpenedRecording): UiBackend {
  const local = onlyLocal(
    new Map([
      ...timelineServices(recording.index),
      ...recordedCluster(recording),
      [Watch.path, watch(recording)],
      [LogsService.methods.SubscribeLogs.path, refuse("a recording does not have the output of tasks")],
      [TaskAccessService.methods.Call.path, refuse("no task runs in a recording")],
    ]),
  );
  return {
    call: (method, ...rest) =>
      local.call(method, ...rest).catch((error: unknown) => {
        if (!(error instanceof RpcError) || error.code !== Status.UNIMPLEMENTED) throw error;
        const name = method.split("/").at(-1) ?? method;
        throw new RpcError(
          Status.FAILED_PRECONDITION,
          `cannot call ${name}: this is a recording, which cannot be changed`,
        );
      }),
  };
}
