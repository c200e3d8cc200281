// Task networks over two nodes: real tunnels and packets, between machines that are namespaces.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { startAgent, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";
import { removeTaskNamespaces, tagOf } from "../support/task-namespaces.ts";
import { client, server } from "../support/task-programs.ts";

const real = labMissing() === null ? test.serial : test.serial.skip;
const dataplane = fileURLToPath(new URL("../../bin/muster-dataplane-nft", import.meta.url));

/** Packets as a tunnel endpoint would send them, with a task's address as source; from an ordinary socket. */
const forger = `const [host, from, to, text] = process.argv.slice(1);
const bytes = (address) => address.split(".").map(Number);
const udp = Buffer.concat([Buffer.from([0x30, 0x39, 0x1f, 0x90, 0, 8 + text.length, 0, 0]), Buffer.from(text)]);
const ip = Buffer.from([0x45, 0, 0, 20 + udp.length, 0, 1, 0, 0, 64, 17, 0, 0, ...bytes(from), ...bytes(to)]);
let sum = 0;
for (let at = 0; at < 20; at += 2) sum += ip.readUInt16BE(at);
while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
ip.writeUInt16BE(0xffff - sum, 10);
const mac = process.argv[5].split(":").map((each) => parseInt(each, 16));
const frame = Buffer.from([8, 0, 0, 0, 0, 0, 0, 0, ...mac, 2, 0, 0, 0, 0, 9, 8, 0]);
const socket = require("dgram").createSocket("udp4");
socket.send(Buffer.concat([frame, ip, udp]), 4789, host, () => socket.close());`;
/** Prints what it receives over UDP. */
const listener = `const socket = require("dgram").createSocket("udp4");
socket.on("message", (data, { address }) => console.log(address + " says " + data));
socket.bind(8080, "0.0.0.0");`;

async function runs(manager: TestManager, service: string): Promise<string> {
  let id = "";
  await until(`${service} to run`, async () => {
    const rows = await manager.json<{ ID: string; CurrentState: string }>("service", "ps", service, "--no-trunc");
    id = rows.find(({ CurrentState }) => CurrentState.startsWith("Running"))?.ID ?? "";
    return id !== "";
  });
  return id;
}

async function addressOf(manager: TestManager, task: string): Promise<string> {
  const shown = await manager.muster("task", "exec", task, "ip", "-o", "-4", "address", "show", "dev", "eth0");
  return /inet ([\d.]+)/.exec(shown)?.[1] ?? "";
}

async function routes(machine: Machine, tag: string): Promise<readonly string[]> {
  const shown = await machine.run("ip", "-o", "route", "show");
  return shown
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line.includes(`dev vxm${tag}`));
}

real(
  "tasks of two nodes reach each other in their network, and nobody else does; killing an agent cuts nothing",
  async (t) => {
    const { hub, machines } = startLab(t, 2);
    const [one, two] = machines as [Machine, Machine];
    const manager = await startManager(t, { on: hub });
    await manager.patience();
    const args = ["--dataplane-driver", dataplane];
    const agents = await Promise.all([
      startAgent(t, manager, { on: one, hostname: "one", args }),
      startAgent(t, manager, { on: two, hostname: "two", args }),
    ]);
    const [tag1, tag2] = agents.map(({ dataDir }) => tagOf(dataDir)) as [string, string];
    for (const { dataDir } of agents) removeTaskNamespaces(t, dataDir);
    await manager.muster("network", "create", "back");
    await manager.muster("network", "create", "apart");
    const at = (name: string, network: string, node: string): readonly string[] => [
      ..."service create -d --driver exec --stop-signal SIGKILL --name".split(" "),
      name,
      "--network",
      network,
      "--constraint",
      `node.hostname==${node}`,
      "--",
    ];
    await manager.muster(...at("web", "back", "one"), process.execPath, "-e", server);
    await manager.muster(...at("ask", "back", "two"), "sleep", "1000");
    await manager.muster(...at("hear", "back", "two"), process.execPath, "-e", listener);
    await manager.muster(...at("other", "apart", "two"), "sleep", "1000");
    const [web, ask, other, hear] = await Promise.all(
      ["web", "ask", "other", "hear"].map((name) => runs(manager, name)),
    );
    const [to, from, ear] = await Promise.all([web, ask, hear].map((task) => addressOf(manager, task as string)));
    const asks = (task: string, port = 80): Promise<string> =>
      manager.muster("task", "exec", task, process.execPath, "-e", client, to as string, String(port));
    const reaches = (task: string, port = 80): Promise<boolean> => asks(task, port).then(Boolean, () => false);
    // No address is rewritten on the way.
    await until("an answer from the other node", async () => (await asks(ask as string).catch(() => "")) === from);
    await until("an answer from the other port", () => reaches(ask as string, 81));
    t.false(await reaches(other as string), "a task of another network");
    t.deepEqual(await routes(two, tag2), [`${to} via ${one.address} dev vxm${tag2} onlink`]);

    // A packet counts as a task's only if it comes from the task's node: the hub speaks for nobody, and node one only for its
    // own tasks.
    const mac = /link\/ether (\S+)/.exec(await two.run("ip", "-o", "link", "show", `vxm${tag2}`))?.[1] ?? "";
    const forge = (machine: Machine, source: string, text: string): Promise<string> =>
      machine.run(process.execPath, "-e", forger, two.address, source, ear as string, text, mac);
    const heard = (): Promise<string> => manager.muster("service", "logs", "--raw", "hear");
    await forge(hub, to as string, "forged by the hub");
    await forge(one, "10.0.77.7", "forged for nobody");
    await forge(one, to as string, "known");
    await until("the legitimate packets", async () => (await heard()).includes(`${to} says known`));
    t.notRegex(await heard(), /forged/);

    const policy = join(tempDir(t, "policy"), "policy.yaml");
    writeFileSync(
      policy,
      `kind: NetworkPolicy
metadata: { name: web }
spec:
  selector: service == 'web'
  ingress:
    - { action: deny, protocol: tcp, source: { selector: service == 'ask' }, destination: { ports: [81] } }
    - { action: allow }
`,
    );
    await manager.muster("policy", "apply", "-f", policy);
    await until("the policy to take effect across nodes", async () => !(await reaches(ask as string, 81)));
    await until("an answer from the remaining port", () => reaches(ask as string));

    // A connection held through the death of the agent at one end.
    const holding = `const peer = require("net").connect(80, ${JSON.stringify(to)});
peer.on("error", () => process.exit(2));
peer.pipe(process.stdout); process.stdin.pipe(peer);`;
    const inside = [`--net=/run/netns/mst-${tag2}-${ask}`, process.execPath, "-e", holding];
    const held = spawn("nsenter", inside, { stdio: ["pipe", "pipe", "inherit"] });
    t.teardown(() => held.kill("SIGKILL"));
    let echoed = "";
    held.stdout.on("data", (data: Buffer) => (echoed += data.toString()));
    await until("the connection", () => echoed.includes(from as string));
    // Packets of the maximum size leave space for the tunnel's headers.
    held.stdin.write("x".repeat(200_000));
    await until("the echo of a large message", () => echoed.length > 200_000);
    const [, agent] = agents;
    await agent?.process.end("SIGKILL");
    // For a task that exits while no agent runs.
    await two.run("ip", "route", "add", "10.0.99.9/32", "via", one.address, "dev", `vxm${tag2}`, "onlink");
    held.stdin.write("still here\n");
    await until("the echo without an agent", () => echoed.includes("still here"));
    agent?.process.start();
    await until("the agent's next session", () => (agent?.sessions().length ?? 0) > 1);
    await until(
      "the stale route to be removed",
      async () => !(await routes(two, tag2)).some((line) => line.startsWith("10.0.99.9")),
    );
    t.is((await manager.json("service", "ps", "ask")).length, 1);
    held.stdin.write("and after\n");
    await until("the echo with the next agent", () => echoed.includes("and after"));

    await manager.muster("service", "rm", "web");
    await until("no route to a removed task", async () => (await routes(two, tag2)).length === 0);
    await manager.muster("service", "rm", "ask", "hear", "other");
    for (const [machine, tag] of [
      [one, tag1],
      [two, tag2],
    ] as const) {
      await until(
        `all tunnels of ${machine.name} to be removed`,
        async () => !(await machine.run("ip", "-o", "link")).includes("vxm"),
      );
      await until(`all tables of ${machine.name} to be removed`, async () => {
        const tables = await machine.run("/usr/sbin/nft", "list", "tables");
        return !tables.includes(`muster-tunnel-${tag}`);
      });
    }
    held.stdin.end();
    if (held.exitCode === null) await once(held, "exit");
  },
);
