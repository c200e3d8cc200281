// The CA of the managers' own NATS is replaced when a manager is removed: what it has opens nothing any more.
import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { createWhenAccepted, serviceNames, sleepers, status, writeSteadily } from "../fixtures/control-client.ts";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { startManager, type TestManager } from "../fixtures/muster.ts";
import { endProcessesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const missing = labMissing();
const real = missing === null ? test.serial : test.serial.skip;
const probe = fileURLToPath(new URL("../fixtures/nats-probe.ts", import.meta.url));
/** Client port of a member's nats-server. */
const natsPort = 2380;

/** "accepted" or "refused", by the nats-server on that machine. */
const answerTo = (certificate: string, machine: Machine): Promise<string> =>
  machine
    .run(process.execPath, probe, machine.address, String(natsPort), certificate)
    .catch((error: unknown) => String(error));

const ownCertificate = ({ dataDir }: TestManager): string => join(dataDir, "nats-tls", "manager.pem");

async function untilThree(manager: TestManager): Promise<void> {
  const has = async (): Promise<boolean> => {
    const { leaderId, warnings } = await status(manager);
    return leaderId !== "" && !warnings.some((warning) => warning.includes("one replica"));
  };
  await until("three copies", () => has().catch(() => false), 240_000);
}

real("a removed manager's certificate for NATS is refused by every nats-server, and no write is lost", async (t) => {
  t.timeout(patient(900_000));
  const { machines } = startLab(t, 3);
  const [one, two, last] = machines as [Machine, Machine, Machine];
  const first = await startManager(t, { on: one, port: 2377 });
  const second = await startManager(t, { on: two, port: 2377, join: first });
  const third = await startManager(t, { on: last, port: 2377, join: first });
  for (const manager of [first, second, third]) await untilThree(manager);
  const stolen = join(third.dataDir, "stolen.pem");
  copyFileSync(ownCertificate(third), stolen);
  t.deepEqual(await Promise.all([one, two].map((machine) => answerTo(stolen, machine))), ["accepted", "accepted"]);

  const { managerId } = await status(third);
  const writes = writeSteadily(first, "w");
  await third.process.end("SIGKILL");
  await endProcessesOf(third.dataDir);
  await first.muster("node", "demote", managerId);
  await until("its removal", async () =>
    first.muster("node", "rm", "--force", managerId).then(
      () => true,
      () => false,
    ),
  );
  // The leader dies in the middle.
  const made = ({ process: { output } }: TestManager): boolean => output.includes("created a new CA for NATS");
  await until("a new CA", () => made(first) || made(second), 120_000);
  const leader = made(first) ? first : second;
  await leader.process.end("SIGKILL");
  leader.process.start();
  await leader.ready();

  for (const machine of [one, two])
    await until("a refusal", async () => (await answerTo(stolen, machine)) === "refused", 240_000);
  t.is(await answerTo(ownCertificate(first), two), "accepted");
  t.is(await answerTo(ownCertificate(second), one), "accepted");
  await createWhenAccepted(second, sleepers("after", 0));
  const written = [...(await writes.stop()), "after"];
  const lacking = async (): Promise<readonly string[]> => {
    const names = new Set(await serviceNames(first));
    return written.filter((name) => !names.has(name));
  };
  await until("every write", async () => (await lacking()).length === 0, 30_000).catch(() => undefined);
  t.deepEqual(await lacking(), []);
  t.log(`${written.length} writes`);

  // It comes back with its old data dir, and learns no new CA.
  third.process.start();
  await until("its refusal", () => !third.process.isRunning, 120_000);
  t.is(await answerTo(ownCertificate(third), one), "refused");
});
