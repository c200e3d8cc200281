// The CA of the managers' own NATS is replaced with the root, and when a manager is removed: what it has opens nothing any more.
import { X509Certificate } from "node:crypto";
import { copyFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import {
  createService,
  createWhenAccepted,
  runningTasks,
  serviceNames,
  sleepers,
  status,
  writeSteadily,
} from "../fixtures/control-client.ts";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { startAgent, startManager, type TestManager } from "../fixtures/muster.ts";
import { endProcessesOf, taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { Trouble_Kind } from "../../proto/gen/messages.ts";
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

async function untilAccepted(certificate: string, machine: Machine): Promise<void> {
  await until("acceptance", async () => {
    const answer = await answerTo(certificate, machine);
    return answer === "accepted" ? true : Promise.reject(new Error(answer));
  });
}

const caFile = ({ dataDir }: TestManager): string => join(dataDir, "nats-tls", "ca.crt");
const ownCertificate = ({ dataDir }: TestManager): string => join(dataDir, "nats-tls", "manager.pem");

interface Member {
  readonly manager: TestManager;
  readonly machine: Machine;
}

/** How many CAs of NATS this manager has created as the leader. */
const created = ({ process: { output } }: TestManager): number =>
  output.match(/created a new CA for NATS/g)?.length ?? 0;

/** Until each manager misses no copy of the log, and its nats-server accepts its certificate. */
async function untilWhole(members: readonly Member[]): Promise<void> {
  for (const { machine, manager } of members)
    await until(
      "all copies",
      async () => {
        const { leaderId, troubles, warnings } = await status(manager);
        const lacking = [
          ...warnings.filter((warning) => warning.includes("one replica")),
          ...troubles.filter(({ kind }) => kind === Trouble_Kind.COPIES_MISSING).map(({ sentence }) => sentence),
        ];
        if (leaderId === "" || lacking.length > 0) throw new Error(lacking.join("; "));
        const answer = await answerTo(ownCertificate(manager), machine);
        return answer === "accepted" ? true : Promise.reject(new Error(`its own nats-server: ${answer}`));
      },
      240_000,
    );
}

async function hasAll(t: ExecutionContext, manager: TestManager, written: readonly string[]): Promise<void> {
  const lacking = async (): Promise<readonly string[]> => {
    const names = new Set(await serviceNames(manager));
    return written.filter((name) => !names.has(name));
  };
  await until("every write", async () => (await lacking()).length === 0, 30_000).catch(() => undefined);
  t.deepEqual(await lacking(), []);
}

interface NodeRow {
  readonly status?: { readonly state?: string };
  readonly description?: { readonly tlsInfo?: { readonly trustRoot?: string; readonly certIssuerPublicKey?: string } };
}

/** Whether all nodes are READY, trust that root alone and have a certificate that it has issued. */
function isEverywhere(root: string, nodes: readonly NodeRow[]): boolean {
  const key = new X509Certificate(root).publicKey.export({ format: "der", type: "spki" }).toString("base64");
  return nodes.every(({ description, status: { state } = {} }) => {
    const { certIssuerPublicKey = "", trustRoot = "" } = description?.tlsInfo ?? {};
    return (
      state === "READY" &&
      certIssuerPublicKey === key &&
      Buffer.from(trustRoot, "base64").toString().trim() === root.trim()
    );
  });
}

/** The certificate that a manager presents to nodes. */
async function presented({ machine, manager }: Member): Promise<X509Certificate> {
  const options = `{ host: "${machine.address}", port: ${manager.port}, rejectUnauthorized: false }`;
  const print = "process.stdout.write(socket.getPeerX509Certificate().toString()), socket.destroy()";
  const script = `const socket = require("node:tls").connect(${options}, () => (${print}))`;
  return new X509Certificate(await machine.run(process.execPath, "-e", script));
}

/** Replaces the root, and kills the leader's machine once it has begun to replace the CA of NATS. */
async function rotatesRoot(t: ExecutionContext, members: readonly Member[]): Promise<void> {
  const [first, second] = members as [Member, Member];
  const oldRoot = await first.manager.muster("ca");
  const former = join(first.manager.dataDir, "former.pem");
  copyFileSync(ownCertificate(first.manager), former);
  const formerCa = readFileSync(caFile(first.manager), "utf8");

  const { leaderId } = await status(first.manager);
  const ids = await Promise.all(members.map(async ({ manager }) => (await status(manager)).managerId));
  const { manager: leader } = members[ids.indexOf(leaderId)] as Member;
  const other = leader === second.manager ? first.manager : second.manager;
  const writes = writeSteadily(t, other, "r");
  await other.muster("swarm", "ca", "--rotate", "--detach");
  await until("a new CA", () => created(leader) > 0, 120_000);
  await leader.process.end("SIGKILL");
  await endProcessesOf(leader.dataDir);
  const count = (await serviceNames(other)).length;
  await until("a write without it", async () => (await serviceNames(other)).length > count);
  leader.process.start();
  await leader.ready();

  const root = await until(
    "one new root everywhere",
    async () => {
      const found = await other.muster("ca");
      return found !== oldRoot && isEverywhere(found, await other.json<NodeRow>("node", "ls")) ? found : null;
    },
    120_000,
  );
  for (const { machine } of members)
    await until("a refusal", async () => (await answerTo(former, machine)) === "refused", 240_000);
  await untilWhole(members);
  for (const member of members) {
    const { manager } = member;
    t.is(await manager.muster("ca"), root);
    t.true((await presented(member)).verify(new X509Certificate(root).publicKey), manager.address);
    const ca = readFileSync(caFile(manager), "utf8");
    t.is(ca, readFileSync(caFile(first.manager), "utf8"), "one list of CAs");
    t.not(ca, formerCa);
  }
  const written = await writes.stop();
  t.log(`${written.length} writes during the rotation`);
  for (const { manager } of members) await hasAll(t, manager, written);
}

real("the CA of NATS is replaced with the root and without a removed manager, and no write is lost", async (t) => {
  t.timeout(patient(900_000));
  const { machines } = startLab(t, 3);
  const [one, two, last] = machines as [Machine, Machine, Machine];
  const first = await startManager(t, { on: one, port: 2377 });
  const agent = await startAgent(t, first, { on: one });
  await createService(first, sleepers("web", 1));
  await until("a running task", async () => (await runningTasks(first)).length === 1);
  const second = await startManager(t, { on: two, port: 2377, join: first });
  const third = await startManager(t, { on: last, port: 2377, join: first });
  const members = [
    { manager: first, machine: one },
    { manager: second, machine: two },
    { manager: third, machine: last },
  ];
  await untilWhole(members);
  const tasks = taskProcesses(agent.dataDir).map(({ pid }) => pid);
  await rotatesRoot(t, members);

  const stolen = join(third.dataDir, "stolen.pem");
  copyFileSync(ownCertificate(third), stolen);
  for (const machine of [one, two]) await untilAccepted(stolen, machine);

  const earlier = new Map(members.map(({ manager }) => [manager, created(manager)]));
  const { managerId } = await status(third);
  const writes = writeSteadily(t, first, "w");
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
  const made = (manager: TestManager): boolean => created(manager) > (earlier.get(manager) ?? 0);
  await until("a new CA", () => made(first) || made(second), 120_000);
  const leader = made(first) ? first : second;
  await leader.process.end("SIGKILL");
  leader.process.start();
  await leader.ready();

  for (const machine of [one, two])
    await until("a refusal", async () => (await answerTo(stolen, machine)) === "refused", 240_000);
  // A nats-server that may no longer accept a CA is restarted.
  await untilAccepted(ownCertificate(first), two);
  await untilAccepted(ownCertificate(second), one);
  await createWhenAccepted(second, sleepers("after", 0));
  const written = [...(await writes.stop()), "after"];
  await hasAll(t, first, written);
  t.log(`${written.length} writes`);
  t.deepEqual(
    taskProcesses(agent.dataDir).map(({ pid }) => pid),
    tasks,
    "no task was restarted",
  );

  // It comes back with its old data dir, and learns no new CA.
  third.process.start();
  await until("its refusal", () => !third.process.isRunning, 120_000);
  t.is(await answerTo(ownCertificate(third), one), "refused");
});
