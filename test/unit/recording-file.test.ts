// Recordings as files: whole ones, and truncated, damaged, changed, foreign and huge ones.
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { openFile } from "../../cli/replay/open.ts";
import { printVerification } from "../../cli/replay/print-verification.ts";
import { describeRecording, lineText } from "../../cli/replay/summary.ts";
import { UserError } from "../../lib/user-error.ts";
import type { Shell } from "../../cli/shell.ts";
import {
  ActorFeed,
  ActorStep,
  RecordedLine,
  RecordedSpan,
  RecordingEnd,
  RecordingPart,
  TimelineAtRequest,
  TimelineOverviewRequest,
  TimelineStepsRequest,
} from "../../proto/gen/messages.ts";
import { PartFileError } from "../../runtime/part-file.ts";
import { openRecording } from "../../runtime/recording/opened.ts";
import { actorsAt, overview, stepsOf } from "../../runtime/recording/timeline.ts";
import { madeFeeds } from "../fixtures/feed-history.ts";
import { createSigner, feedParts, fileOf, headPart, inOrder, sealedParts } from "../support/recordings.ts";

const toMs = 1_700_000_000_000;
const made = { processes: 2, actors: 20, steps: 2_000, fromMs: toMs - 60_000, toMs };

/** Each process's parts after the other's, as they are collected. */
function parts(): RecordingPart[] {
  const feeds = [...madeFeeds(made)];
  const byProcess = feeds.toSorted((a, b) => (a.process < b.process ? -1 : a.process > b.process ? 1 : 0));
  return [
    headPart(),
    ...feedParts(byProcess),
    RecordingPart.create({ line: RecordedLine.create({ process: "manager-m0", atMs: toMs, text: "late" }) }),
    RecordingPart.create({ line: RecordedLine.create({ process: "manager-m1", atMs: toMs - 5, text: "early" }) }),
    RecordingPart.create({ span: RecordedSpan.create({ spanId: "s1", name: "task create" }) }),
  ];
}

const opened = (file: Uint8Array, isForced = false) => openRecording(inOrder([file]), { isForced });

async function refusal(t: ExecutionContext, file: Uint8Array): Promise<PartFileError> {
  return (await t.throwsAsync(opened(file), { instanceOf: PartFileError })) as PartFileError;
}

test("a recording opens with its steps in the order of time, its lines, and who signed it", async (t) => {
  const file = await fileOf(sealedParts(parts(), await createSigner(), ["node-n1: it did not answer"]));
  const recording = await opened(file);
  t.is(recording.fault, null);
  t.like(recording.seal, { kind: "signed", managerId: "m1", clusterId: "cluster1" });
  const { steps, gaps, stepsTotal, isRecording } = overview(
    recording.index,
    TimelineOverviewRequest.create({ buckets: 4 }),
  );
  t.deepEqual([stepsTotal, isRecording, gaps], [2_000, true, []]);
  t.is(
    steps.reduce((sum, count) => sum + count, 0),
    2_000,
  );
  const times = stepsOf(recording.index, TimelineStepsRequest.create({ limit: 5_000 })).steps.map(
    ({ step }) => step?.atMs ?? 0,
  );
  t.deepEqual(
    times,
    times.toSorted((a, b) => a - b),
  );
  t.deepEqual(
    recording.lines.map(({ text }) => text),
    ["early", "late"],
  );
  t.deepEqual(recording.lines.map(lineText), [
    "2023-11-14T22:13:19.995Z manager-m1       early",
    "2023-11-14T22:13:20.000Z manager-m0       late",
  ]);
  const sentences = describeRecording(recording);
  t.regex(sentences[0] ?? "", /^signed by manager m1 of cluster cluster1 \(root sha256:[0-9a-f]{64}\)$/);
  t.true(sentences.includes("2 processes, 2,000 steps, 0 transactions, 2 log lines, 1 span"), sentences.join("\n"));
  t.true(sentences.includes("missing: node-n1: it did not answer"));
});

test("times after the recorded ones are taken for the end, so one wrong clock moves nothing", async (t) => {
  const wrong = Array.from(madeFeeds({ ...made, processes: 1, steps: 20 }), (feed) =>
    ActorFeed.patch(feed, {
      process: "node-n1",
      atMs: toMs * 2,
      steps: feed.steps.map((step) => ActorStep.patch(step, { atMs: toMs * 2 })),
    }),
  );
  const [, ...others] = parts();
  const whole = sealedParts([headPart({ toMs }), ...feedParts(wrong), ...others], await createSigner());
  const recording = await opened(await fileOf(whole));
  const found = overview(recording.index, TimelineOverviewRequest.create({ buckets: 1 }));
  t.like(found, { stepsTotal: 2_020, fromMs: made.fromMs, toMs: toMs + 60_000 });
});

test("a truncated recording is refused, and opens as far as it goes when that is forced", async (t) => {
  const encoded = sealedParts(parts(), await createSigner());
  const file = await fileOf(encoded);
  for (const end of [5, 11, 100, file.length >> 1, file.length - 100]) {
    const { fault, message } = await refusal(t, file.subarray(0, end));
    t.is(fault, "truncated", `${end} of ${file.length} bytes: ${message}`);
  }
  // Cut between two parts, and compressed again.
  t.is((await refusal(t, await fileOf(encoded.slice(0, -1)))).fault, "truncated");
  const forced = await opened(await fileOf(encoded.slice(0, 50)), true);
  t.is(forced.fault?.fault, "truncated");
  t.is(forced.index.stepsTotal, 480);
  t.deepEqual(describeRecording(forced)[0], "NOT TO BE TRUSTED: it is truncated: its last part is missing");
});

test("a damaged recording is refused", async (t) => {
  const file = await fileOf(sealedParts(parts(), await createSigner()));
  for (const at of [12, 100, file.length >> 1, file.length - 100]) {
    const damaged = Buffer.from(file);
    damaged[at] = (damaged[at] as number) ^ 0x55;
    const { fault } = await refusal(t, damaged);
    t.true(fault === "damaged" || fault === "truncated", `byte ${at}: ${fault}`);
  }
  const garbage = await refusal(
    t,
    await fileOf([...sealedParts([headPart()], null).slice(0, 1), Buffer.from([0xff, 0xff])]),
  );
  t.is(garbage.message, "it is damaged: a part of 2 bytes cannot be decoded");
  const after = sealedParts([headPart()], null);
  t.regex((await refusal(t, await fileOf([...after, ...after]))).message, /parts follow its last one/);
});

test("a changed or forged recording is recognised, and the failed check is named", async (t) => {
  const signer = await createSigner();
  const encoded = sealedParts(parts(), signer);
  const last = RecordingPart.decode(encoded.at(-1) as Uint8Array).end as RecordingEnd;
  const withEnd = (fields: Partial<RecordingEnd>, from = encoded): Promise<Buffer> =>
    fileOf([
      ...from.slice(0, -1),
      RecordingPart.encode(RecordingPart.create({ end: RecordingEnd.patch(last, fields) })),
    ]);
  const changed = [...encoded];
  changed[3] = encoded[4] as Uint8Array;
  const other = await createSigner();
  const worker = sealedParts(parts(), await createSigner({ role: "swarm-worker" }));
  const foreign = sealedParts(parts(), await createSigner({ organization: "cluster2" }));
  for (const [file, failed] of [
    [await fileOf(changed), /its digest does not fit its contents/],
    [await withEnd({ missing: ["nothing"] }), /its digest does not fit its contents/],
    [await withEnd({}, encoded.toSpliced(2, 1)), /it has \d+ parts instead of the \d+ that were written/],
    [await withEnd({ signature: new Uint8Array(70) }), /its signature does not fit its certificate/],
    [await withEnd({ certificate: other.certificatePem }), /its signature does not fit its certificate/],
    [await withEnd({ certificate: "none" }), /its certificate is not a PEM certificate/],
    [await withEnd({ root: other.rootPem }), /was not issued by the root/],
    [await fileOf(worker), /its signer m1 is not a manager/],
    [await fileOf(foreign), /its signer belongs to cluster cluster2, but it names cluster cluster1/],
  ] as const) {
    t.regex((await refusal(t, file)).message, failed);
    const forced = await opened(file, true);
    t.is(forced.seal.kind, "broken");
    t.regex(describeRecording(forced)[0] ?? "", /^NOT TO BE TRUSTED: /);
  }
  t.is((await opened(await fileOf(sealedParts(parts(), null)))).seal.kind, "unsigned");
});

test("a file that is not a recording, or of a later version, is refused with what to do", async (t) => {
  t.is((await refusal(t, Buffer.from("hello world, this is a text"))).fault, "foreign");
  t.is((await refusal(t, Buffer.alloc(0))).fault, "foreign");
  const later = await fileOf(sealedParts([headPart()], null));
  later.writeUInt32BE(7, 8);
  const { fault, message } = await refusal(t, later);
  t.is(fault, "future");
  t.is(message, "its format has version 7, but this Muster reads version 1: use a newer Muster");
});

test("a small file with huge contents, or with a huge part, is refused at the limit", async (t) => {
  const bomb = await fileOf(Array.from({ length: 64 }, () => new Uint8Array(1024 * 1024)));
  t.true(bomb.length < 100_000, `${bomb.length} bytes`);
  const limits = { partBytesMax: 2 ** 21, recordingBytesMax: 2 ** 24 };
  await t.throwsAsync(
    openRecording(
      inOrder([
        await fileOf(
          (function* () {
            yield* sealedParts([headPart()], null).slice(0, 1);
            for (let count = 0; count < 64; count += 1)
              yield RecordingPart.encode(
                RecordingPart.create({ line: RecordedLine.create({ text: "x".repeat(2 ** 20) }) }),
              );
          })(),
        ),
      ]),
      { isForced: true, limits },
    ),
    {
      message: /its contents exceed the limit of 16 MiB/,
    },
  );
  await t.throwsAsync(openRecording(inOrder([await fileOf([new Uint8Array(2 ** 22)])]), { isForced: false, limits }), {
    message: /a part of 4194304 bytes exceeds the limit of 2 MiB/,
  });
});

test("a file of 2 GB, a folder and a missing file are refused by name", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "recording-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const huge = join(folder, "huge");
  writeFileSync(huge, "MUSTREC\n");
  truncateSync(huge, 2 * 1024 ** 3);
  const message = `cannot open ${huge}: it has 2048 MiB, but a recording has at most 1024 MiB`;
  await t.throwsAsync(openFile(huge, false), { message });
  await t.throwsAsync(openFile(folder, false), { message: `cannot open ${folder}: it is not a file` });
  await t.throwsAsync(openFile(join(folder, "none"), false), { message: /: no such file$/ });
  const short = join(folder, "short");
  const file = await fileOf(sealedParts(parts(), null));
  writeFileSync(short, file.subarray(0, 200));
  await t.throwsAsync(openFile(short, false), { message: /it is truncated.*; --force opens what can be read of it$/ });
});

test("texts and times that a recording claims cannot control the terminal, or end the command", async (t) => {
  const escape = "\u001b[2J";
  const line = RecordedLine.create({ process: escape, atMs: 9e15, text: escape });
  const feed = ActorFeed.create({
    process: `manager-${escape}`,
    sequence: 1,
    atMs: 9e15,
    steps: [
      ActorStep.create({ actor: escape, machine: escape, number: 1, atMs: 9e15, event: escape, states: [escape] }),
    ],
  });
  const recording = await opened(
    await fileOf(
      sealedParts(
        [headPart({ version: escape, toMs: 9e15 }), ...feedParts([feed]), RecordingPart.create({ line })],
        null,
        [`node-n1: ${escape}`],
      ),
    ),
  );
  const shell = { width: 200, print: (text: string) => printed.push(text) } as unknown as Shell;
  const printed: string[] = [...describeRecording(recording), ...recording.lines.map(lineText)];
  const { message } = await t.throwsAsync<Error>(printVerification(shell, recording.index), { instanceOf: UserError });
  const all = [...printed, message].join("\n");
  t.false(all.includes("\u001b"), all);
  t.true(all.includes("9000000000000000 ms"), all);
  t.throws(() => [...actorsAt(recording.index, TimelineAtRequest.create({ atMs: 1 }))], {
    message: /is outside of the recorded time \(9000000000000000 ms to 9000000000000000 ms\)/,
  });
});

test("a small file with very many tiny parts is refused at the limit", async (t) => {
  const tiny = RecordingPart.encode(RecordingPart.create({ line: RecordedLine.create() }));
  const file = await fileOf([
    ...sealedParts([headPart()], null).slice(0, 1),
    ...Array.from({ length: 10_000 }, () => tiny),
  ]);
  const limits = { partBytesMax: 2 ** 20, recordingBytesMax: 2 ** 20 };
  await t.throwsAsync(openRecording(inOrder([file]), { isForced: true, limits }), {
    message: /its contents exceed the limit of 1 MiB/,
  });
});
