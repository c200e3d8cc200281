// Real managers on one NATS: root rotation through kill -9 and a change of leader, and managers demoted and promoted.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { startAgent, startManager, type TestManager } from "../fixtures/muster.ts";
import { natsServer } from "../fixtures/nats-server.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

interface NodeRow {
  readonly id: string;
  readonly role?: string;
  readonly managerStatus?: { readonly leader?: boolean; readonly addr?: string };
  readonly status?: { readonly state?: string };
  readonly description?: { readonly tlsInfo?: { readonly trustRoot?: string } };
}

const nodes = (manager: TestManager): Promise<NodeRow[]> => manager.json<NodeRow>("node", "ls");
const base64 = (pem: string): string => Buffer.from(`${pem.trim()}\n`).toString("base64");

async function twoManagers(t: ExecutionContext): Promise<readonly [TestManager, TestManager]> {
  const { server } = await natsServer(t);
  const nats = server.url.replace("//", `//${server.user}:${server.pass}@`);
  const first = await startManager(t, { nats });
  return [first, await startManager(t, { nats, join: first })];
}

async function leads(asked: TestManager, manager: TestManager): Promise<boolean> {
  return (await nodes(asked)).some(
    ({ managerStatus }) => managerStatus?.leader === true && managerStatus.addr === manager.address,
  );
}

test.serial("a rotation continues after the leader is killed, and ends with one root everywhere", async (t) => {
  t.timeout(patient(300_000));
  const [first, second] = await twoManagers(t);
  await startAgent(t, second);
  await startAgent(t, second);
  await until(
    "four READY nodes",
    async () => (await nodes(second)).filter(({ status }) => status?.state === "READY").length === 4,
  );
  const oldRoot = await second.muster("swarm", "ca");
  const leader = (await leads(second, first)) ? first : second;
  const other = leader === first ? second : first;
  await other.muster("swarm", "ca", "--rotate", "--detach");
  await leader.process.end("SIGKILL");
  // The dead manager's node blocks the rotation until its process is back.
  leader.process.start();
  await until(
    "one new root everywhere",
    async () => {
      const root = await other.muster("swarm", "ca");
      const trusted = new Set((await nodes(other)).map(({ description }) => description?.tlsInfo?.trustRoot));
      return root !== oldRoot && trusted.size === 1 && trusted.has(base64(root));
    },
    60_000,
  );
  await leader.ready();
  t.is(await leader.muster("swarm", "ca"), await other.muster("swarm", "ca"));
  t.true((await nodes(other)).every(({ status }) => status?.state === "READY"));
});

test.serial(
  "a demoted manager exits and stays away until it is promoted, and nodes continue with the other",
  async (t) => {
    t.timeout(patient(300_000));
    const [first, second] = await twoManagers(t);
    const agent = await startAgent(t, first);
    const idOf = async (manager: TestManager): Promise<string> =>
      (await nodes(manager)).find(({ managerStatus }) => managerStatus?.addr === manager.address)?.id ?? "";
    const [firstId, secondId] = [await idOf(first), await idOf(second)];
    const worker = (await nodes(first)).find(({ id }) => id !== firstId && id !== secondId)?.id ?? "";
    await t.throwsAsync(first.muster("node", "promote", worker), { message: /engines and agents only run tasks/ });

    t.is(await second.muster("node", "demote", firstId), `Manager ${firstId} demoted in the swarm.`);
    await until("the demoted manager to exit", () => !first.process.isRunning, 20_000);
    t.regex(first.process.output, /this manager was demoted/);
    await until(
      "it to be a worker",
      async () => {
        const node = (await nodes(second)).find(({ id }) => id === firstId);
        return node !== undefined && node.managerStatus === undefined && node.role !== "MANAGER";
      },
      20_000,
    );
    await until("a leader", () => leads(second, second));
    await t.throwsAsync(second.muster("node", "demote", secondId), {
      message: /attempting to demote the last manager/,
    });
    await until(
      "the agent at the other manager",
      async () => (await nodes(second)).find(({ id }) => id === worker)?.status?.state === "READY",
      30_000,
    );
    t.true(agent.process.isRunning);

    first.process.start();
    await until("the refusal to start", () => !first.process.isRunning, 20_000);
    t.is((await nodes(second)).find(({ id }) => id === firstId)?.managerStatus, undefined);
    await second.muster("node", "promote", firstId);
    first.process.start();
    await first.ready();
    await until(
      "two managers",
      async () => (await nodes(second)).filter(({ managerStatus }) => managerStatus !== undefined).length === 2,
    );
  },
);

test.serial("Docker's flags change roots and keys from files, join tokens and expiry", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  const folder = manager.dataDir;
  const { execFileSync } = await import("node:child_process");
  const openssl = (text: string): void => void execFileSync("openssl", text.split(" "), { cwd: folder, stdio: "pipe" });
  openssl("ecparam -name prime256v1 -genkey -noout -out my.key");
  openssl("req -x509 -new -key my.key -subj /CN=mine -days 800 -out my.pem");
  const output = await manager.muster(
    "swarm",
    "ca",
    "--rotate",
    "--ca-cert",
    join(folder, "my.pem"),
    "--ca-key",
    join(folder, "my.key"),
  );
  t.is(output, readFileSync(join(folder, "my.pem"), "utf8").trim());
  await t.throwsAsync(manager.muster("swarm", "ca", "--rotate", "--ca-cert", join(folder, "my.pem")), {
    message: /the --ca-cert flag requires that a --ca-key flag and\/or --external-ca flag be provided as well/,
  });
  await t.throwsAsync(manager.muster("swarm", "ca", "--cert-expiry", "3h"), {
    message: /`--cert-expiry` flag requires the `--rotate` flag to update the CA/,
  });
  await t.throwsAsync(manager.muster("swarm", "update", "--cert-expiry", "59m"), {
    message: /minimum certificate expiry time is: 1h0m0s/,
  });
  t.is(await manager.muster("swarm", "update", "--cert-expiry", "3h", "--task-history-limit", "7"), "Swarm updated.");
  const [cluster] = await manager.json<{ spec: { caConfig: { nodeCertExpiry: { seconds: number } } } }>(
    "cluster",
    "inspect",
    "default",
  );
  t.is(cluster?.spec.caConfig.nodeCertExpiry.seconds, 10_800);

  const [before, managers] = [
    await manager.muster("swarm", "join-token", "-q", "worker"),
    await manager.muster("swarm", "join-token", "-q", "manager"),
  ];
  const after = await manager.muster("swarm", "join-token", "--rotate", "-q", "worker");
  t.not(after, before);
  t.is(after.split("-")[2], before.split("-")[2]);
  t.is(await manager.muster("swarm", "join-token", "-q", "manager"), managers);
});
