// Two sites behind NAT, whose nodes have no route to the two managers: each has a leaf node of NATS, and sealed links through it.
import { createWriteStream, readFileSync, writeFileSync } from "node:fs";
import { spawn, type ChildProcess } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { siteOf } from "../../machines/node.ts";
import { NodeStatus_State, type Task } from "../../proto/gen/messages.ts";
import { nodeCalled, nodes, runningTasks, status } from "../fixtures/control-client.ts";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { labMissing, startLab, type Lab, type Machine } from "../fixtures/lab.ts";
import { runMuster, startAgent, startManager, tempDir, type TestAgent, type TestManager } from "../fixtures/muster.ts";
import { currentNats } from "../fixtures/nats-server.ts";
import { mockDriver } from "../fixtures/plugin-launch.ts";
import { taskProcesses } from "../fixtures/processes.ts";
import { terminal } from "../fixtures/terminal.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const missing = labMissing() ?? engineMissing();
const withLab = missing === null ? test.serial : test.serial.skip;
const leafConfig = fileURLToPath(new URL("../../deploy/nats-leaf.conf", import.meta.url));
const sitePort = 4222;
/** For the two managers, which are on one machine. */
const [nodesPorts, leafPorts, logPort] = [[4222, 4223], [7422, 7423], 4300] as const;
const byText = (a: string, b: string): number => a.localeCompare(b);
const secret = "the-secret-of-the-lab";

interface Site {
  readonly name: string;
  readonly gateway: Machine;
  /** By number, from 1. */
  readonly hostnames: readonly string[];
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

function spawnOn(machine: Machine, ...command: readonly string[]): ChildProcess {
  const [file = "", ...rest] = [...machine.inside, ...command];
  return spawn(file, rest, { stdio: ["ignore", "pipe", "ignore"] });
}

/** Two managers that share a NATS, each with an own NATS for nodes. */
async function startManagers(t: ExecutionContext, { hub }: Lab): Promise<readonly [TestManager, TestManager]> {
  const config = join(tempDir(t, "log"), "nats.conf");
  writeFileSync(
    config,
    `listen: "127.0.0.1:${logPort}"\njetstream { store_dir: ${JSON.stringify(tempDir(t, "jetstream"))} }\n`,
  );
  const server = spawnOn(hub, currentNats, "-c", config);
  t.teardown(() => ended(server));
  const listening = (at: 0 | 1): readonly string[] => [
    "--listen-nodes-nats",
    `${hub.address}:${nodesPorts[at]}`,
    "--listen-leaf-nodes",
    `${hub.address}:${leafPorts[at]}`,
  ];
  const shared = { on: hub, nats: `nats://127.0.0.1:${logPort}` };
  const first = await startManager(t, { ...shared, args: listening(0) });
  return [first, await startManager(t, { ...shared, join: first, args: listening(1) })];
}

/** Fills in deploy/nats-leaf.conf, as docs/sites.md says. */
async function configure(t: ExecutionContext, lab: Lab, manager: TestManager, name: string): Promise<string> {
  const folder = tempDir(t, name);
  const [ca, config] = [join(folder, "muster-ca.pem"), join(folder, "nats-leaf.conf")];
  const [root, password] = await Promise.all([manager.muster("ca"), manager.muster("token", "site", name)]);
  writeFileSync(ca, root);
  const given = readFileSync(leafConfig, "utf8");
  const [remote = ""] = /^ {4}\{\n[^]*?^ {4}\}\n/m.exec(given) ?? [];
  const remotes = leafPorts.map((port) =>
    remote
      .replace("tls://lab:PASSWORD@192.0.2.1:7422", `tls://${name}:${password}@${lab.hub.address}:${port}`)
      .replace("/etc/nats/muster-ca.pem", ca),
  );
  const filled = given.replace("lab-1", `${name}-1`).replace(remote, remotes.join(""));
  t.is(filled.split(password).length, 3, "both remotes are in the file");
  t.is(filled.split(ca).length, 3);
  writeFileSync(config, filled, { mode: 0o600 });
  return config;
}

/** `drivers`: arguments of each agent, by its number. */
async function startSite(
  t: ExecutionContext,
  lab: Lab,
  manager: TestManager,
  at: number,
  drivers: readonly (readonly string[])[] = [],
): Promise<Site> {
  const name = ["lab", "dock"][at] ?? "";
  const gateway = lab.machines[at] as Machine;
  const server = lab.behind(gateway);
  const floor = lab.behind(server);
  await lab.translate(server, gateway);
  const config = await configure(t, lab, manager, name);
  let leaf: ChildProcess | null = null;
  const startLeaf = (): void => {
    leaf = spawnOn(server, currentNats, "-c", config);
  };
  startLeaf();
  t.teardown(() => ended(leaf));
  const address = `${floor.address.replace(/\.2$/, ".1")}:${sitePort}`;
  await t.throwsAsync(floor.fetch(`http://${manager.address}/`, 1_000), undefined, "it has no route to the manager");
  const hostnames = [1, 2, 3].map((each) => `${name}-${each}`);
  const agents = await Promise.all(
    hostnames.map((hostname, each) =>
      startAgent(t, manager, {
        on: floor,
        hostname,
        join: `nats://${address}`,
        args: ["--seal", "--site", name, ...(drivers[each] ?? [])],
      }),
    ),
  );
  const listener = `
    const { connect } = require("nats");
    connect({ servers: process.argv[1], reconnect: true, maxReconnectAttempts: -1, reconnectTimeWait: 200 }).then((connection) =>
      connection.subscribe(">", { callback: (_, { data, subject }) => process.stdout.write(Buffer.concat([Buffer.from(subject), data])) }));`;
  const ears = spawnOn(floor, process.execPath, "-e", listener, address);
  t.teardown(() => ended(ears));
  const record = join(tempDir(t, "heard"), "messages");
  ears.stdout?.pipe(createWriteStream(record, { flags: "a" }));
  writeFileSync(record, "");
  return {
    name,
    gateway,
    hostnames,
    agents,
    heard: () => readFileSync(record),
    startLeaf,
    killLeaf: () => ended(leaf),
  };
}

/** States of a site's nodes. */
async function statesOf(manager: TestManager, { hostnames }: Site): Promise<readonly (NodeStatus_State | undefined)[]> {
  const found = await nodes(manager);
  return hostnames.map((name) => found.find(({ description }) => description?.hostname === name)?.status?.state);
}

function untilAll(manager: TestManager, sites: readonly Site[], state: "READY" | "DOWN"): Promise<unknown> {
  const names = sites.map(({ name }) => name).join(" and ");
  return until(`all nodes of ${names} to be ${state}`, async () =>
    (await Promise.all(sites.map((site) => statesOf(manager, site))))
      .flat()
      .every((each) => each === NodeStatus_State[state]),
  );
}

/** Address of the manager of the agent's last session. */
function managerOf({ process: { output } }: TestAgent): string {
  const line = output.split("\n").findLast((each) => each.includes('"the node established a session"')) ?? "{}";
  return (JSON.parse(line) as { manager?: string }).manager ?? "";
}

withLab(
  "two sites behind NAT run tasks through leaf nodes that can read nothing, and keep them when leaf, network and manager fail",
  async (t) => {
    t.timeout(patient(400_000));
    const lab = startLab(t, 2);
    const [managers, engine] = await Promise.all([startManagers(t, lab), startEngine(t)]);
    const [manager] = managers;
    const settings = { endpoint: `unix://${join(engine.dir, "docker.sock")}`, state_dir: join(engine.dir, "notes") };
    const docker = join(mockDriver, "../muster-driver-docker");
    const sites = await Promise.all([
      startSite(t, lab, manager, 0, [
        [],
        ["--driver", `docker=${docker}`, "--driver-config", `docker=${JSON.stringify(settings)}`],
        ["--driver", `mock=${mockDriver}`],
      ]),
      startSite(t, lab, manager, 1),
    ]);
    const [cut, other] = sites as [Site, Site];
    await untilAll(manager, sites, "READY");
    const siteOfNode = new Map<string, string>();
    for (const { gateway, hostnames, name } of sites)
      for (const hostname of hostnames) {
        const node = await nodeCalled(manager, hostname);
        siteOfNode.set(node.id, siteOf(node));
        t.is(siteOf(node), name);
        // As the manager sees it behind NAT.
        t.is(node.status?.addr, gateway.address);
      }

    const file = join(tempDir(t, "secret"), "secret");
    writeFileSync(file, secret);
    await manager.muster("secret", "create", "key", file);
    const create = (name: string, ...args: readonly string[]): Promise<string> =>
      manager.muster("service", "create", "--detach", "--name", name, "--on-disconnect", "keep", ...args);
    const spread = ["--replicas", "6", "--placement-pref", "spread=node.site", "--secret", "key"];
    await Promise.all([
      create("web", "--driver", "exec", ...spread, "sh", "-c", "echo begun at work; exec sleep 600"),
      create("box", "--stop-signal", "SIGKILL", "bb:1", "sleep", "600"),
      create("mock", "--driver", "mock", "--driver-config", JSON.stringify({ run_for: "1h" })),
    ]);
    await until("eight running tasks", async () => (await runningTasks(manager)).length === 8);
    const tasks = await runningTasks(manager);
    const byDriver = (kind: string): readonly Task[] =>
      tasks.filter(({ spec }) => (spec?.generic?.kind ?? "container") === kind);
    const siteOfTask = ({ nodeId }: Task): string => siteOfNode.get(nodeId) ?? "";
    t.deepEqual(byDriver("exec").map(siteOfTask).toSorted(byText), ["dock", "dock", "dock", "lab", "lab", "lab"]);
    t.deepEqual([...byDriver("container"), ...byDriver("mock")].map(siteOfTask), ["lab", "lab"]);
    const taskAt = (site: Site): string => byDriver("exec").find((task) => siteOfTask(task) === site.name)?.id ?? "";
    const box = byDriver("container")[0]?.id ?? "";
    const runningAs = async () => ({
      tasks: (await runningTasks(manager)).map(({ id }) => id).toSorted(byText),
      processes: sites
        .flatMap(({ agents }) => agents.flatMap(({ dataDir }) => taskProcesses(dataDir).map(({ pid }) => pid)))
        .toSorted((a, b) => a - b),
      containers: await engine.docker("ps", "--quiet", "--no-trunc"),
    });
    // A task runs before its shell has become the command.
    await until("six processes", async () => (await runningAs()).processes.length === 6);
    const before = await runningAs();
    t.regex(before.containers, /^[0-9a-f]{64}$/);
    await until(
      "their output",
      async () => (await manager.muster("service", "logs", "web")).split("begun at work").length === 7,
    );
    const control = (each: TestManager): string[] => ["--host", `unix://${join(each.dataDir, "control.sock")}`];
    await Promise.all(
      [...sites.map(taskAt), box].map(async (id) => {
        const typed = ["stty size; echo typed-$((40 + 2))", "exit 7"];
        const { code, output } = await terminal([...control(manager), "task", "exec", "-it", id, "sh"], typed);
        t.is(code, 7, output);
        t.regex(output, /\n31 77\r+\n/);
        t.regex(output, /\ntyped-42\r+\n/);
        const zeros = "head -c 500000 /dev/zero | tr '\\0' x";
        const bytes = id === box ? "x" : await manager.muster("task", "exec", id, "sh", "-c", zeros);
        t.is(bytes.length, id === box ? 1 : 500_000);
      }),
    );
    for (const site of sites) {
      const heard = site.heard();
      t.log(`a client of the leaf node at ${site.name} heard ${heard.length} bytes`);
      t.true(heard.length > 500_000);
      t.true(heard.includes(`muster.v1.site.${site.name}.up.`));
      const others = sites.find((each) => each !== site)?.name ?? "";
      const texts = [
        secret,
        "begun at work",
        "typed-42",
        "x".repeat(100),
        `muster.v1.site.${others}.`,
        "muster.v1.node.",
      ];
      for (const text of texts)
        t.false(heard.includes(text), `nothing of "${text.slice(0, 30)}" was heard at ${site.name}`);
    }

    const reaches = (through: TestManager, site: Site, word: string): Promise<unknown> =>
      until(`a command that says ${word} at ${site.name}`, () =>
        through.muster("task", "exec", taskAt(site), "echo", word).then(
          (text) => text === word,
          () => false,
        ),
      );

    // A site that is cut off, and a leaf node of the other that dies in the middle of an exchange.
    const cutAt = performance.now();
    await cut.gateway.run(
      "/usr/sbin/nft",
      "add chain ip site pass { type filter hook forward priority 0; policy drop; }",
    );
    const endless = ["task", "exec", taskAt(other), "sh", "-c", "while :; do echo x; done"];
    const streaming = runMuster([...control(manager), ...endless]);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    await other.killLeaf();
    t.not((await streaming).code, 0, "the command learns of it");
    other.startLeaf();
    await reaches(manager, other, "again");
    await Promise.all([untilAll(manager, [other], "READY"), untilAll(manager, [cut], "DOWN")]);
    const trouble = await manager.muster("info");
    t.regex(trouble, /site lab is cut off/);
    t.notRegex(trouble, /site dock is cut off/);

    // The manager of a session is killed meanwhile: the session moves to the other one.
    const [moving] = other.agents as [TestAgent];
    const killed = managers.find(({ address }) => address === managerOf(moving)) ?? manager;
    const survivor = managers.find((each) => each !== killed) ?? manager;
    t.is(managerOf(moving), killed.address);
    await killed.process.end("SIGKILL");
    await until("its session with the other manager", () => managerOf(moving) === survivor.address);
    await until("a leader", async () => (await status(survivor)).leaderId !== "");
    await untilAll(survivor, [other], "READY");
    await reaches(survivor, other, "still");
    for (const agent of other.agents) t.is(managerOf(agent), survivor.address);
    killed.process.start();
    await killed.ready();
    await cut.gateway.run("/usr/sbin/nft", "delete chain ip site pass");
    t.log(`the site was cut off for ${Math.round((performance.now() - cutAt) / 1_000)} s`);
    await untilAll(manager, sites, "READY");
    await reaches(manager, cut, "back");
    t.deepEqual(await runningAs(), before, "every task is the same process or container");

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
