/** The recording of an hour: opening its file, and reading moments of it. */
import {
  ActorFeed,
  RecordingPart,
  TimelineAtRequest,
  TimelineOverviewRequest,
  TimelineStepsRequest,
} from "../proto/gen/messages.ts";
import { actorsAt, overview, stepsOf } from "../runtime/recording/timeline.ts";
import { openRecording, type OpenedRecording } from "../runtime/recording/opened.ts";
import { madeFeeds } from "../test/fixtures/feed-history.ts";
import { createSigner, fileOf, headPart, inOrder, sealedParts } from "../test/support/recordings.ts";
import { mebibytes, percentile, seconds, table } from "./table.ts";

const hourMs = 3_600_000;
const processes = 5;
/** On each process. */
const actors = 2_000;
const seeks = 20;

/** The duration in milliseconds, and the processor's part of it: other work of the machine counts in the first alone. */
async function timed(work: () => Promise<void> | void): Promise<{ readonly ms: number; readonly cpuMs: number }> {
  const [begun, cpu] = [performance.now(), process.cpuUsage()];
  await work();
  const { user, system } = process.cpuUsage(cpu);
  return { ms: performance.now() - begun, cpuMs: (user + system) / 1_000 };
}

const both = ({ ms, cpuMs }: { readonly ms: number; readonly cpuMs: number }): string =>
  `${seconds(ms / 1_000)} (${seconds(cpuMs / 1_000)} of CPU)`;

export async function recordingTable(short: boolean): Promise<string> {
  const steps = short ? 20_000 : 1_000_000;
  const toMs = 1_700_000_000_000;
  const fromMs = toMs - hourMs;
  // One at a time: a million objects in memory would slow the opening down.
  function* parts(): Generator<RecordingPart> {
    yield headPart();
    for (const feed of madeFeeds({ processes, actors, steps, fromMs, toMs })) yield RecordingPart.create({ feed });
  }
  const file = await fileOf(sealedParts(parts(), await createSigner()));
  let opened: OpenedRecording | null = null;
  const opening = await timed(async () => {
    opened = await openRecording(inOrder([file]), { isForced: false });
  });
  const { index } = opened as unknown as OpenedRecording;
  const seeking: { readonly ms: number; readonly cpuMs: number }[] = [];
  for (let at = 1; at <= seeks; at += 1) {
    const atMs = fromMs + (hourMs * at) / (seeks + 1);
    const seek = await timed(() => {
      for (const feed of actorsAt(index, TimelineAtRequest.create({ atMs }))) ActorFeed.encode(feed);
    });
    seeking.push(seek);
  }
  const overviews = await timed(() => void overview(index, TimelineOverviewRequest.create({ buckets: 2_000 })));
  const trace = await timed(() => {
    const { traceId = "" } = stepsOf(index, TimelineStepsRequest.create({ limit: 1 })).steps[0]?.step ?? {};
    stepsOf(index, TimelineStepsRequest.create({ limit: 5_000, traceId }));
  });
  const worst = (ms: readonly number[]): string => `${percentile(ms, 0.95).toFixed(0)} ms`;
  return table(
    `The recording of an hour, ${steps.toLocaleString("en")} steps of ${processes * actors} actors`,
    ["file", "opened", "seek (95 %)", "CPU of a seek (95 %)", "overview", "steps of a trace", "memory"],
    [
      [
        mebibytes(file.length / 2 ** 20),
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
