// `muster simulate` when an invariant is violated: made up by replacing a check before it is loaded.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import test from "ava";
import { TimelineOverviewRequest } from "../../proto/gen/messages.ts";
import { openRecording } from "../../runtime/recording/opened.ts";
import { overview } from "../../runtime/recording/timeline.ts";
import { runMuster, tempDir } from "../fixtures/muster.ts";
import { inOrder } from "../support/recordings.ts";

const hooks = fileURLToPath(new URL("../fixtures/violated-invariant.ts", import.meta.url));

test.serial("a violated invariant ends the command with status 1, names its seed and leaves a recording", async (t) => {
  const args = ["simulate", "--scenario", "flapping-node", "--seed", "5", "--seeds", "2", "-j", "1"];
  // The recording goes into a folder of the test.
  const env = { NODE_OPTIONS: `--import=${hooks}`, TMPDIR: tempDir(t, "violation") };
  const { code, stderr, stdout } = await runMuster(args, { env });
  t.is(code, 1, stderr);
  t.regex(stdout, /S1: made up by a test/);
  const [, seed, path] = /recording of seed (\d+): (\S+\.mrec)/.exec(stderr) ?? [];
  t.is(seed, "5", stderr);
  const file = readFileSync(path as string);
  const { index } = await openRecording(inOrder([file]), { isForced: false });
  t.true(overview(index, TimelineOverviewRequest.create({ buckets: 1 })).stepsTotal > 0);

  const { code: without } = await runMuster(args);
  t.is(without, 0, "the same seeds pass without it");
});
