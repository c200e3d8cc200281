/** `muster log check` and `muster log repair`: for a log that managers reject. All managers must be stopped. */
import { closeSync, fsyncSync, openSync } from "node:fs";
import { join } from "node:path";
import { LogMark } from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import { NatsProblem } from "../../runtime/nats/errors.ts";
import { connectNats } from "../../runtime/nats/connection.ts";
import { NatsServerProblem } from "../../runtime/nats/server.ts";
import type { Log } from "../../runtime/ports/index.ts";
import { Keyring } from "../../runtime/store/keyring.ts";
import { checkLog, readAll, repairLog, type CheckedLog, type LogReport } from "../../runtime/store/log-check.ts";
import { readMark } from "../../runtime/store/log-mark.ts";
import { joinDelimited } from "../../runtime/store/record.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import { SealedBlobs } from "../../runtime/store/sealed-blobs.ts";
import { SealedLog } from "../../runtime/store/sealed-log.ts";
import type { Vault } from "../../runtime/store/vault.ts";
import { SystemClock } from "../../runtime/system/clock.ts";
import { MarkFile, markFileName } from "../../runtime/system/mark-file.ts";
import { SystemRandom } from "../../runtime/system/random.ts";
import { appendAllSync } from "../../runtime/system/whole-file.ts";
import { command, type Command } from "../command.ts";
import { isConfirmed } from "../confirm.ts";
import { secretFrom } from "../secret-file.ts";
import type { Shell } from "../shell.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import { openDataDir, type DataDir } from "../../processes/data-dir.ts";
import { keysOf, unreadable } from "../../processes/log-keys.ts";
import { startOwnNats } from "../../processes/move-own-nats.ts";
import { natsFlags, sharedNatsOf } from "./nats-flags.ts";
import { natsAccess, replicasOn, type SharedNats } from "../../processes/shared-nats.ts";
import { logging } from "./serving-flags.ts";
import { telemetryFor } from "../../processes/telemetry.ts";

const { "nats-move": _, "lease-ttl": __, ...natsOnly } = natsFlags;
const flags = {
  "data-dir": { type: "string", value: "DIR", help: "Data directory of a stopped manager" },
  "unlock-key-file": {
    type: "string",
    value: "FILE",
    help: "File whose first line is the unlock key of a locked manager; - reads standard input",
    completes: "file",
  },
  ...natsOnly,
  ...logging,
} as const;

const check: Command = command({
  summary: "Read the whole log and its snapshots and report what is usable; changes nothing.",
  options: flags,
  run: ({ values, shell }) =>
    withLog(values, async ({ checked }) => {
      for (const line of linesOf(checked.report)) shell.print(line);
      if (checked.report.broken !== null) throw new UserError(remedy(checked));
    }),
});

const repair: Command = command({
  summary: "Keep the newest readable state and drop the log before it, after making a copy.",
  options: { ...flags, yes: { type: "boolean", short: "y", help: "Do not prompt for confirmation" } },
  run: ({ values, shell }) => withLog(values, (opened) => mend(opened, values.yes === true, shell)),
});

export const commands = { check, repair };

interface Opened {
  readonly checked: CheckedLog;
  readonly parts: Parameters<typeof repairLog>[0];
  readonly raw: Log;
  readonly dataDir: DataDir;
}

async function mend({ checked, dataDir, parts, raw }: Opened, isAgreed: boolean, shell: Shell): Promise<void> {
  const { replica, report } = checked;
  for (const line of linesOf(report)) shell.print(line);
  if (report.broken === null) {
    shell.print("Nothing to repair.");
    return;
  }
  if (replica === null || report.isFuture) throw new UserError(remedy(checked));
  const copy = join(dataDir.path, `log-removed-${report.last}-${new Date().toISOString().replaceAll(":", "")}`);
  const warning = `The cluster will continue from the state of record ${report.reached}. Records ${report.reached + 1} to ${report.last} and the earlier history will be lost. All records will be copied to ${copy}.`;
  if (!isAgreed && !(await isConfirmed(shell, warning))) throw new UserError("nothing was changed");
  await repairLog(parts, checked, async () => {
    await copyTo(copy, raw, report);
    await acceptLoss(dataDir, replica);
  });
  shell.print(`Repaired: the log continues after record ${report.last} from the state of record ${report.reached}.`);
  shell.print(`Copy:     ${copy}`);
}

/** The manager reports the loss to the cluster when it starts: records of nodes may be lost. */
async function acceptLoss({ path }: DataDir, { checksum, recordSequence: sequence }: Replica): Promise<void> {
  const disk = new MarkFile(join(path, markFileName));
  const mark = readMark(disk) ?? LogMark.create({ sequence, checksum });
  try {
    await disk.write(LogMark.encode(LogMark.patch(mark, { lossAccepted: timestampOf(Date.now()) })));
  } finally {
    await disk.close();
  }
}

/** Each message as stored in NATS (sealed), prefixed with its length. */
async function copyTo(path: string, log: Log, { first, last }: LogReport): Promise<void> {
  const file = openSync(path, "wx", 0o600);
  try {
    await readAll(
      { log, clock: new SystemClock() },
      first,
      last,
      (__, data) => {
        appendAllSync(file, joinDelimited([data]));
        return true;
      },
      true,
    );
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

function linesOf(report: LogReport): readonly string[] {
  const { badSnapshots, base, broken, first, foreign, last, reached } = report;
  return [
    `Log:       records ${first} to ${last}`,
    ...(foreign.length === 0
      ? []
      : [`Foreign:   ${foreign.length} messages of another cluster: ${foreign.slice(0, 10).join(", ")}`]),
    ...badSnapshots.map(({ sequence, what }) => `Snapshot:  of record ${sequence} is unusable: ${what}`),
    broken === null ? "Result:    intact" : `Result:    breaks at record ${broken.sequence}: ${broken.what}`,
    `State:     readable up to record ${reached}, from ${base === 0 ? "the first record" : `the snapshot of record ${base}`}`,
  ];
}

function remedy({ replica, report }: CheckedLog): string {
  if (report.isFuture) return "a later version of Muster wrote this log: upgrade, and start the manager again";
  if (replica === null) return "no state is readable: restore NATS's storage from a copy";
  return `run 'muster log repair' to keep the state of record ${report.reached}; later records, up to ${report.last}, will be lost`;
}

/** Throws UserError. */
async function withLog(
  values: Parameters<typeof sharedNatsOf>[0] & {
    readonly "data-dir"?: string | undefined;
    readonly "unlock-key-file"?: string | undefined;
    readonly "log-level"?: string | undefined;
  },
  work: (opened: Opened) => Promise<void>,
): Promise<void> {
  if (values["data-dir"] === undefined) throw new UsageError("--data-dir is required: its keys open the log");
  const { "unlock-key-file": keyFile } = values;
  const unlockKey = keyFile === undefined ? undefined : secretFrom(keyFile, "unlock key");
  const shared = sharedNatsOf(values);
  const telemetry = await telemetryFor("muster-log", values["log-level"] ?? "error");
  const dataDir = openDataDir(values["data-dir"]);
  const undo: (() => Promise<void> | void)[] = [() => dataDir.release()];
  try {
    const random = new SystemRandom();
    const clock = new SystemClock();
    const vault = keysOf(dataDir, random, unlockKey);
    const link = await connect({ dataDir, vault }, shared, telemetry, undo);
    const keyring = new Keyring(vault, random);
    const parts = {
      clock,
      log: new SealedLog(link.log, keyring, random, clock),
      blobs: new SealedBlobs(link.blobs, keyring, { random, clock }),
    };
    const explain = unreadable(keyring);
    const checked = await checkLog(parts).catch((error: unknown) => {
      throw explain(error);
    });
    await work({ checked, parts, raw: link.log, dataDir });
  } catch (error) {
    if (error instanceof NatsProblem || error instanceof NatsServerProblem)
      throw new UserError(error.message, { cause: error });
    throw error;
  } finally {
    for (const step of undo.reverse()) await step();
    await telemetry.shutdown();
  }
}

async function connect(
  { dataDir, vault }: { readonly dataDir: DataDir; readonly vault: Vault },
  shared: SharedNats | null,
  telemetry: Awaited<ReturnType<typeof telemetryFor>>,
  undo: (() => Promise<void> | void)[],
): ReturnType<typeof connectNats> {
  const common = { name: "muster-log", telemetry };
  if (shared !== null) {
    const access = { ...common, servers: shared.servers, replicas: replicasOn(shared), ...natsAccess(shared) };
    const link = await connectNats(access);
    undo.push(() => link.drain());
    return link;
  }
  const [others] = vault.fields.natsServers;
  if (others !== undefined)
    throw new UserError(
      `this manager has no nats-server of its own, and the log is at ${new URL(others).host}: use the data dir of the manager there`,
    );
  const own = await startOwnNats(dataDir.path, vault, { telemetry });
  undo.push(() => own.stop());
  const link = await connectNats({ ...common, ...own.access, flushesEveryWrite: own.server.flushesEveryWrite });
  undo.push(() => link.drain());
  return link;
}
