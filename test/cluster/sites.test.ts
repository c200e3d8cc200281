// Two sites behind NAT, whose nodes have no route to the manager: each has a leaf node of NATS, and sealed links through it.
import { createWriteStream, readFileSync, writeFileSync } from "node:fs";
import { spawn, type ChildProcess } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { siteOf } from "../../machines/node.ts";
import { findBinary } from "../../runtime/nats/server-binary.ts";
import { nodeCalled, runningTasks } from "../fixtures/control-client.ts";
import { labMissing, startLab, type Lab, type Machine } from "../fixtures/lab.ts";
import { runMuster, startAgent, startManager, tempDir, type TestAgent, type TestManager } from "../fixtures/muster.ts";
import { taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const withLab = labMissing() === null ? test.serial : test.serial.skip;
const leafConfig = fileURLToPath(new URL("../../deploy/nats-leaf.conf", import.meta.url));
const [nodesPort, leafPort, sitePort] = [4222, 7422, 4222];
const byText = (a: string, b: string): number => a.localeCompare(b);
const secret = "the-secret-of-the-lab";

interface Site {
  readonly name: string;
  readonly gateway: Machine;
  /** Where the leaf node runs. */
  readonly server: Machine;
  readonly agents: readonly TestAgent[];
  /** Every message that a client of the leaf node hears. */
  heard(): Buffer;
  startLeaf(): void;
  killLeaf(): Promise<void>;
}

function ended(child: ChildProcess | null): Promise<void> {
  if (child === null || child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  return new Promise((resolve) => {
    child.once("exit", () => resolve());
    child.kill("SIGKILL");
  });
}

/** Fills in deploy/nats-leaf.conf, as docs/sites.md says. */
async function configure(t: ExecutionContext, manager: TestManager, name: string): Promise<string> {
  const folder = tempDir(t, name);
  const [ca, config] = [join(folder, "muster-ca.pem"), join(folder, "nats-leaf.conf")];
  writeFileSync(ca, await manager.muster("ca"));
  const password = await manager.muster("token", "site", name);
  const address = manager.address.split(":")[0] ?? "";
  const filled = readFileSync(leafConfig, "utf8")
    .replace("lab-1", `${name}-1`)
    .replace("tls://lab:PASSWORD@192.0.2.1:7422", `tls://${name}:${password}@${address}:${leafPort}`)
    .replace("/etc/nats/muster-ca.pem", ca);
  t.true(filled.includes(password) && filled.includes(ca), "every value is in the file");
  writeFileSync(config, filled, { mode: 0o600 });
  return config;
}

async function startSite(t: ExecutionContext, lab: Lab, manager: TestManager, at: number): Promise<Site> {
  const name = ["lab", "dock"][at] ?? "";
  const gateway = lab.machines[at] as Machine;
  const server = lab.behind(gateway);
  await lab.translate(server, gateway);
  const floor = lab.behind(server);
  const config = await configure(t, manager, name);
  const { binary } = await findBinary(undefined);
  let leaf: ChildProcess | null = null;
  const startLeaf = (): void => {
    const [file, ...rest] = server.inside;
    leaf = spawn(file ?? "", [...rest, binary, "-c", config], { stdio: "ignore" });
  };
  startLeaf();
  t.teardown(() => ended(leaf));
  const address = `${floor.address.replace(/\.2$/, ".1")}:${sitePort}`;
  await t.throwsAsync(floor.fetch(`http://${manager.address}/`, 1_000), undefined, "it has no route to the manager");
  const agents = await Promise.all(
    [1, 2, 3].map((each) =>
      startAgent(t, manager, {
        on: floor,
        hostname: `${name}-${each}`,
        join: `nats://${address}`,
        args: ["--seal", "--site", name],
      }),
    ),
  );
  const listener = `
    const { connect } = require("nats");
    connect({ servers: process.argv[1], reconnect: true, maxReconnectAttempts: -1, reconnectTimeWait: 200 }).then((connection) =>
      connection.subscribe(">", { callback: (_, { data, subject }) => process.stdout.write(Buffer.concat([Buffer.from(subject), data])) }));`;
  const [file, ...rest] = floor.inside;
  const ears = spawn(file ?? "", [...rest, process.execPath, "-e", listener, address], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  t.teardown(() => ended(ears));
  const record = join(tempDir(t, "heard"), "messages");
  ears.stdout.pipe(createWriteStream(record, { flags: "a" }));
  writeFileSync(record, "");
  return { name, gateway, server, agents, heard: () => readFileSync(record), startLeaf, killLeaf: () => ended(leaf) };
}

withLab(
  "two sites behind NAT run tasks through leaf nodes that can read nothing, and keep them when leaf, network and manager fail",
  async (t) => {
    t.timeout(patient(400_000));
    const lab = startLab(t, 2);
    const { address } = lab.hub;
    const listen = ["--listen-nodes-nats", `${address}:${nodesPort}`, "--listen-leaf-nodes", `${address}:${leafPort}`];
    const manager = await startManager(t, { on: lab.hub, args: listen });
    const sites = [await startSite(t, lab, manager, 0), await startSite(t, lab, manager, 1)];
    const [cut, other] = sites as [Site, Site];
    const hostnames = sites.flatMap(({ name }) => [1, 2, 3].map((each) => `${name}-${each}`));
    const nodesCalled = async () => {
      const found = await manager.json<{ readonly Hostname: string; readonly Status: string }>("node", "ls");
      return hostnames.map((hostname) => found.find((each) => each.Hostname === hostname)?.Status);
    };
    const states = nodesCalled;
    const areReady = async () => (await states()).every((state) => state === "Ready");
    await until("all nodes to be READY", areReady);
    for (const [at, node] of (await Promise.all(hostnames.map((each) => nodeCalled(manager, each)))).entries()) {
      t.is(siteOf(node), at < 3 ? "lab" : "dock");
      // As the manager sees it behind NAT.
      t.is(node.status?.addr, lab.machines[at < 3 ? 0 : 1]?.address);
    }

    const file = join(tempDir(t, "secret"), "secret");
    writeFileSync(file, secret);
    await manager.muster("secret", "create", "key", file);
    const placed = [
      "--replicas",
      "6",
      "--placement-pref",
      "spread=node.site",
      "--on-disconnect",
      "keep",
      "--secret",
      "key",
    ];
    const command = ["sh", "-c", "echo begun at work; exec sleep 600"];
    await manager.muster("service", "create", "--name", "web", "--driver", "exec", ...placed, ...command);
    await until("six running tasks", async () => (await runningTasks(manager)).length === 6);
    const tasks = await runningTasks(manager);
    const nodes = new Map(
      (await Promise.all(hostnames.map((each) => nodeCalled(manager, each)))).map((node) => [node.id, siteOf(node)]),
    );
    t.deepEqual(tasks.map(({ nodeId }) => nodes.get(nodeId) ?? "").toSorted(byText), [
      "dock",
      "dock",
      "dock",
      "lab",
      "lab",
      "lab",
    ]);
    const taskAt = (site: Site) => tasks.find(({ nodeId }) => nodes.get(nodeId) === site.name)?.id ?? "";
    const pids = () =>
      sites
        .flatMap(({ agents }) => agents.flatMap(({ dataDir }) => taskProcesses(dataDir).map(({ pid }) => pid)))
        .toSorted((a, b) => a - b);
    const before = pids();
    t.is(before.length, 6);
    await until(
      "their output",
      async () => (await manager.muster("service", "logs", "web")).split("begun at work").length === 7,
    );
    for (const site of sites) {
      t.is(await manager.muster("task", "exec", taskAt(site), "echo", "inside"), "inside");
      const bytes = await manager.muster(
        "task",
        "exec",
        taskAt(site),
        "sh",
        "-c",
        "head -c 500000 /dev/zero | tr '\\0' x",
      );
      t.is(bytes.length, 500_000);
    }
    for (const site of sites) {
      const heard = site.heard();
      t.log(`a client of the leaf node at ${site.name} heard ${heard.length} bytes`);
      t.true(heard.length > 500_000);
      t.true(heard.includes(`muster.v1.site.${site.name}.up.`));
      const others = sites.find((each) => each !== site)?.name ?? "";
      for (const text of [secret, "begun at work", "x".repeat(100), `muster.v1.site.${others}.`, "muster.v1.node."])
        t.false(heard.includes(text), `nothing of "${text.slice(0, 30)}" was heard at ${site.name}`);
    }

    const reaches = (site: Site, word: string) =>
      until(`a command that says ${word} at ${site.name}`, () =>
        manager.muster("task", "exec", taskAt(site), "echo", word).then(
          (text) => text === word,
          () => false,
        ),
      );

    // A leaf node that dies in the middle of an exchange.
    const host = `unix://${join(manager.dataDir, "control.sock")}`;
    const streaming = runMuster([
      "--host",
      host,
      "task",
      "exec",
      taskAt(other),
      "sh",
      "-c",
      "while :; do echo x; done",
    ]);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    await other.killLeaf();
    t.not((await streaming).code, 0, "the command learns of it");
    other.startLeaf();
    await reaches(other, "again");
    await until("all nodes to be READY again", areReady);

    // A site that is cut off, and a manager that is killed meanwhile.
    await cut.gateway.run(
      "/usr/sbin/nft",
      "add chain ip site pass { type filter hook forward priority 0; policy drop; }",
    );
    await until("the nodes of the site to be DOWN", async () =>
      (await states()).slice(0, 3).every((state) => state === "Down"),
    );
    t.true((await states()).slice(3).every((state) => state === "Ready"));
    t.regex(await manager.muster("info"), /site lab is cut off/);
    await manager.process.end("SIGKILL");
    manager.process.start();
    await manager.ready();
    await until("the other site's nodes to return", async () =>
      (await states()).slice(3).every((state) => state === "Ready"),
    );
    await reaches(other, "still");
    await cut.gateway.run("/usr/sbin/nft", "delete chain ip site pass");
    await until("all nodes to be READY again", areReady);
    await reaches(cut, "back");
    t.deepEqual(pids(), before, "every task is the same process");
    t.deepEqual(
      (await runningTasks(manager)).map(({ id }) => id).toSorted(byText),
      tasks.map(({ id }) => id).toSorted(byText),
    );

    // Its password is no longer valid.
    await manager.muster("token", "worker", "--rotate");
    await until("no command to reach the site", () =>
      manager.muster("task", "exec", taskAt(other), "true").then(
        () => false,
        () => true,
      ),
    );
  },
);
