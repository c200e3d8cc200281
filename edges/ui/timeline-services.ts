/** The Timeline service of a page, answered from an index. */
import { timelineMethods } from "../../runtime/recording/timeline.ts";
import type { TimelineIndex } from "../../runtime/recording/timeline-index.ts";
import type { CallMethod, LocalServices } from "./backend.ts";

export function timelineServices(index: TimelineIndex): LocalServices {
  return new Map(
    Array.from(timelineMethods(index), ([path, answer]): [string, CallMethod] => [
      path,
      async (_method, request, sink, { signal }) => {
        for (const message of answer(request)) {
          await sink.write(message);
          if (signal.aborted) return;
        }
      },
    ]),
  );
}
