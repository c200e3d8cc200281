import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { fullSentence, spaceKind, spaceLimits } from "../../runtime/nats/disk-space.ts";
import type { LogSpace } from "../../runtime/ports/index.ts";
import { DiskWatch } from "../../runtime/nats/disk-watch.ts";
import { createTelemetry } from "../../runtime/telemetry/telemetry.ts";

const mebi = 1024 * 1024;

test("the required free space is one percent of the disk, within bounds, and at most an eighth", (t) => {
  const full = (sizeMebi: number): number => spaceLimits(sizeMebi * mebi).fullBytes / mebi;
  t.deepEqual([40, 160, 1_000, 5_000, 1_000_000].map(full), [5, 16, 16, 50, 128]);
  t.is(spaceLimits(160 * mebi).scarceBytes, 64 * mebi);
});

test("F2: a full disk stays full until half as much again is free, and likewise a scarce one", (t) => {
  const limits = spaceLimits(160 * mebi);
  const walk = (freeMebis: readonly number[]): LogSpace[] => {
    let before: LogSpace = "ample";
    return freeMebis.map((free) => (before = spaceKind(free * mebi, limits, before)));
  };
  t.deepEqual(walk([100, 64, 63, 65, 95, 96, 16, 15, 17, 23, 24, 65, 96]), [
    "ample",
    "ample",
    "scarce",
    "scarce",
    "scarce",
    "ample",
    "scarce",
    "full",
    "full",
    "full",
    "scarce",
    "scarce",
    "ample",
  ]);
});

test("a rejection says how much space is free and how much is required", (t) => {
  t.regex(
    fullSentence({ kind: "full", freeBytes: 3.7 * mebi, writableBytes: 0, limits: spaceLimits(160 * mebi) }),
    /^the log's disk is full: 3 MB are free, and writes stop below 16 MB/,
  );
});

test("a reserve file as large as the required free space is kept on the disk", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "muster-room-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const telemetry = await createTelemetry({ service: "test", level: "silent", otlpEndpoint: undefined });
  const reserveFile = join(folder, "reserve");
  const watch = await DiskWatch.start({ folder, reserveFile, telemetry });
  watch.stop();
  const { fullBytes } = watch.space.limits;
  if (watch.space.kind !== "full") t.is(statSync(reserveFile).size, fullBytes);
  t.is(spaceLimits(watch.sizeBytes).fullBytes, fullBytes);
});
