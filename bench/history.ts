/**
 * Reading the past of a long log on a real nats-server: how long an answer takes, how many records a second are applied for it,
 * and how long the manager's other work waits meanwhile.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createControl } from "../actors/control.ts";
import { createHistory } from "../actors/history/history.ts";
import {
  ControlService,
  HistoryRequest,
  ListTasksRequest,
  ListTasksRequest_Filters,
  ReadAtRequest,
} from "../proto/gen/messages.ts";
import { connectNats } from "../runtime/nats/connection.ts";
import { startNatsServer } from "../runtime/nats/server.ts";
import * as pki from "../lib/pki/index.ts";
import type { CallContext, RpcError } from "../runtime/ports/rpc.ts";
import { snapshotDefaults, snapshotName, snapshotsToKeep } from "../runtime/store/snapshots.ts";
import { mebibytes, table } from "./table.ts";
import { serviceOf, watchable, Writer } from "./watching.ts";

const columns = [
  "question",
  "records applied",
  "answer time",
  "CPU",
  "records/CPU second",
  "longest turn (CPU)",
  "additional memory",
];

/** Changes per record: the reports that a busy cluster sends at about the same time. */
const eventsPerRecord = 3;

const local: CallContext = {
  peer: { identity: null, local: true, address: "" },
  signal: new AbortController().signal,
  traceparent: "",
};

/** Longest uninterrupted work on the event loop, in CPU time, which excludes other processes on the machine. */
function longestTurn(): { stop(): number } {
  let longest = 0;
  let isOver = false;
  const used = (): number => {
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1_000;
  };
  let before = used();
  const poll = (): void => {
    const now = used();
    longest = Math.max(longest, now - before);
    before = now;
    if (!isOver) setImmediate(poll);
  };
  setImmediate(poll);
  return {
    stop: () => {
      isOver = true;
      return longest;
    },
  };
}

export async function historyTable(short: boolean): Promise<string> {
  const count = short ? 20_000 : 100_000;
  const dataDir = mkdtempSync(join(tmpdir(), "muster-bench-history-"));
  const writer = new Writer();
  const creating: Uint8Array[] = [];
  const { environment, replica, telemetry, apply, watch } = await watchable(
    writer,
    (record) => void creating.push(record),
  );
  const server = await startNatsServer({ dataDir, logFile: join(dataDir, "nats.log"), telemetry });
  try {
    const { url, user, pass, flushesEveryWrite } = server;
    const link = await connectNats({ servers: [url], user, pass, name: "bench", telemetry, flushesEveryWrite });
    const { log, blobs } = link;
    const append = async (record: Uint8Array, last: number): Promise<void> => {
      const outcome = await log.append(record, last);
      if (outcome.kind !== "appended") throw new Error(`the log rejected an append: ${outcome.kind}`);
    };
    for (const [at, record] of creating.entries()) await append(record, at);
    const stored: number[] = [];
    while (replica.version < count) {
      const record = writer.patching(eventsPerRecord);
      await append(record, replica.version);
      apply(record);
      if (replica.version % snapshotDefaults.everyRecords === 0) {
        await blobs.put(snapshotName(replica.version), replica.snapshot());
        stored.push(replica.version);
        const kept = new Set(snapshotsToKeep(stored, replica.version, snapshotDefaults));
        for (const old of stored.filter((each) => !kept.has(each))) await blobs.remove(snapshotName(old));
        stored.splice(0, stored.length, ...[...kept].toSorted((a, b) => a - b));
      }
    }
    const history = createHistory(environment, {
      log,
      blobs,
      controlAt: (past) => createControl(past, { leaderId: () => "", authority: pki }).handlers,
    });
    const readAt = async (version: number): Promise<void> => {
      const filters = ListTasksRequest_Filters.create({ serviceIds: [serviceOf(1)] });
      const request = ListTasksRequest.encode(ListTasksRequest.create({ filters }));
      const { path } = ControlService.methods.ListTasks;
      await history.readAt(ReadAtRequest.create({ version, method: path, request }), local);
    };
    const tell = (fields: Partial<HistoryRequest>): Promise<void> => {
      const ended = Promise.withResolvers<void>();
      const sink = {
        write: () => undefined,
        end: (error?: RpcError) => (error === undefined ? ended.resolve() : ended.reject(error)),
        bufferedBytes: () => 0,
      };
      history.stream(HistoryRequest.create(fields), sink, local);
      return ended.promise;
    };
    const baseOf = (version: number): number => Math.max(0, ...stored.filter((each) => each < version));
    // The record farthest from the snapshot before it.
    const worst = [...stored, count].reduce((found, each) =>
      each - baseOf(each) > found - baseOf(found) ? each : found,
    );
    const rows: string[][] = [];
    const measure = async (question: string, applied: number, ask: () => Promise<void>): Promise<void> => {
      globalThis.gc?.();
      const rest = process.memoryUsage.rss();
      let most = rest;
      const watching = setInterval(() => (most = Math.max(most, process.memoryUsage.rss())), 20);
      const turns = longestTurn();
      const [startedAt, before] = [performance.now(), process.cpuUsage()];
      await ask();
      const ms = performance.now() - startedAt;
      const { user, system } = process.cpuUsage(before);
      const cpuMs = (user + system) / 1_000;
      const longestMs = turns.stop();
      clearInterval(watching);
      rows.push([
        question,
        String(applied),
        `${ms.toFixed(ms < 10 ? 1 : 0)} ms`,
        `${cpuMs.toFixed(0)} ms`,
        applied < 1_000 ? "-" : Math.round(applied / (cpuMs / 1_000)).toLocaleString("en"),
        `${longestMs.toFixed(0)} ms`,
        mebibytes((most - rest) / 2 ** 20),
      ]);
    };
    await measure("--at, farthest from a snapshot", worst - baseOf(worst), () => readAt(worst));
    await measure("the same version again", 0, () => readAt(worst));
    await measure("--at a thousand records later", Math.min(1_000, count - worst), () =>
      readAt(Math.min(count, worst + 1_000)),
    );
    await measure("--at, ten records after a snapshot", 10, () => readAt((stored[0] ?? 0) + 10));
    await measure("history of a service, all retained records", count - (stored[0] ?? 0), () =>
      tell({ kind: "service", subject: serviceOf(1), follow: false }).catch(() => undefined),
    );
    await measure("history of a task, all retained records", count - (stored[0] ?? 0), () =>
      tell({ kind: "task", subject: "task00000001" }),
    );
    history.stop();
    watch.stop();
    link.close();
    return table(
      `Reading the past: a log of ${count.toLocaleString("en")} records of ${eventsPerRecord} changes, 10,000 tasks, snapshots at ${stored.join(", ")}`,
      columns,
      rows,
    );
  } finally {
    await server.stop();
    rmSync(dataDir, { recursive: true, force: true });
  }
}
