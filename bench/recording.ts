/** The time line of a recording of an hour: opening it, and reading moments of it. */
import { ActorFeed, TimelineAtRequest, TimelineOverviewRequest, TimelineStepsRequest } from "../proto/gen/messages.ts";
import { actorsAt, overview, stepsOf } from "../runtime/recording/timeline.ts";
import { TimelineIndex } from "../runtime/recording/timeline-index.ts";
import { madeFeeds } from "../test/fixtures/feed-history.ts";
import { mebibytes, percentile, seconds, table } from "./table.ts";

const hourMs = 3_600_000;
const processes = 5;
/** On each process. */
const actors = 2_000;
const seeks = 20;

/** The duration in milliseconds, and the processor's part of it: other work of the machine counts in the first alone. */
function timed(work: () => void): { readonly ms: number; readonly cpuMs: number } {
  const [begun, cpu] = [performance.now(), process.cpuUsage()];
  work();
  const { user, system } = process.cpuUsage(cpu);
  return { ms: performance.now() - begun, cpuMs: (user + system) / 1_000 };
}

const both = ({ ms, cpuMs }: { readonly ms: number; readonly cpuMs: number }): string =>
  `${seconds(ms / 1_000)} (${seconds(cpuMs / 1_000)} of CPU)`;

export async function recordingTable(short: boolean): Promise<string> {
  const steps = short ? 20_000 : 1_000_000;
  const toMs = 1_700_000_000_000;
  const fromMs = toMs - hourMs;
  const encoded = Array.from(madeFeeds({ processes, actors, steps, fromMs, toMs }), (feed) => ActorFeed.encode(feed));
  const index = new TimelineIndex({ bytesMax: 2 ** 30, holdMs: 0, isRecording: true });
  const opening = timed(() => {
    for (const bytes of encoded) index.appendEncoded(bytes);
  });
  const seeking = Array.from({ length: seeks }, (_, at) =>
    timed(() => {
      const atMs = fromMs + (hourMs * (at + 1)) / (seeks + 1);
      for (const feed of actorsAt(index, TimelineAtRequest.create({ atMs }))) ActorFeed.encode(feed);
    }),
  );
  const overviews = timed(() => void overview(index, TimelineOverviewRequest.create({ buckets: 2_000 })));
  const trace = timed(() => {
    const { traceId = "" } = stepsOf(index, TimelineStepsRequest.create({ limit: 1 })).steps[0]?.step ?? {};
    stepsOf(index, TimelineStepsRequest.create({ limit: 5_000, traceId }));
  });
  const worst = (ms: readonly number[]): string => `${percentile(ms, 0.95).toFixed(0)} ms`;
  return table(
    `The time line of an hour, ${steps.toLocaleString("en")} steps of ${processes * actors} actors`,
    ["indexed", "seek (95 %)", "CPU of a seek (95 %)", "overview", "steps of a trace", "memory"],
    [
      [
        both(opening),
        worst(seeking.map(({ ms }) => ms)),
        worst(seeking.map(({ cpuMs }) => cpuMs)),
        `${overviews.ms.toFixed(0)} ms`,
        `${trace.ms.toFixed(0)} ms`,
        mebibytes(index.memoryBytes / 2 ** 20),
      ],
    ],
  );
}
