// Tasks with networks of their own: real namespaces and packets, on a machine that is itself a namespace.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { startAgent, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { commandOf, kill, processesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { removeTaskNamespaces, tagOf, taskNamespaces } from "../support/task-namespaces.ts";
import { client, server } from "../support/task-programs.ts";

const missing = labMissing();
const real = missing === null ? test.serial : test.serial.skip;
const dataplane = fileURLToPath(new URL("../../bin/muster-dataplane-nft", import.meta.url));

async function links(machine: Machine): Promise<readonly string[]> {
  return (await machine.run("ip", "-o", "link")).split("\n").filter((line) => line.includes(" mst"));
}

async function addressOf(manager: TestManager, task: string): Promise<string> {
  const shown = await manager.muster("task", "exec", task, "ip", "-o", "-4", "address", "show", "dev", "eth0");
  return /inet ([\d.]+)/.exec(shown)?.[1] ?? "";
}

async function runs(manager: TestManager, service: string): Promise<string> {
  let id = "";
  await until(`${service} to run`, async () => {
    const [row] = await manager.json<{ ID: string; CurrentState: string; Error: string }>(
      "service",
      "ps",
      service,
      "--no-trunc",
    );
    id = row?.ID ?? "";
    return row?.CurrentState.startsWith("Running") === true;
  });
  return id;
}

async function apply(t: ExecutionContext, manager: TestManager, text: string): Promise<void> {
  const file = join(tempDir(t, "policy"), "policy.yaml");
  writeFileSync(file, text);
  await manager.muster("policy", "apply", "-f", file);
}

real(
  "tasks reach each other by their own addresses, a policy blocks a port, and killing an agent leaves them undisturbed",
  async (t) => {
    const { machines } = startLab(t, 1);
    const machine = machines[0] as Machine;
    const manager = await startManager(t, { on: machine });
    await manager.patience();
    const agent = await startAgent(t, manager, {
      on: machine,
      hostname: "one",
      args: ["--dataplane-driver", dataplane],
    });
    const ours = `mst-${tagOf(agent.dataDir)}-`;
    removeTaskNamespaces(t, agent.dataDir);
    await manager.muster("network", "create", "back");
    const create = ["service", "create", "-d", "--driver", "exec", "--network", "back", "--stop-signal", "SIGKILL"];
    await manager.muster(
      ...create,
      "--name",
      "web",
      "-p",
      "published=8080,target=80,mode=host",
      "--",
      process.execPath,
      "-e",
      server,
    );
    await manager.muster(...create, "--name", "ask", "--", "sleep", "1000");
    const [web, ask] = [await runs(manager, "web"), await runs(manager, "ask")];
    const [to, from] = [await addressOf(manager, web), await addressOf(manager, ask)];
    const asks = (port: number): Promise<string> =>
      manager.muster("task", "exec", ask, process.execPath, "-e", client, to, String(port));
    const reaches = (port: number): Promise<boolean> => asks(port).then(Boolean, () => false);
    // No address is rewritten between tasks.
    await until("an answer", async () => (await asks(80)) === from);
    await until("an answer from the other port", () => reaches(81));
    await until("an answer on the node's port", () =>
      machine.run(process.execPath, "-e", client, machine.address, "8080").then(Boolean),
    );

    await apply(
      t,
      manager,
      `kind: NetworkPolicy
metadata: { name: web }
spec:
  selector: service == 'web'
  ingress:
    - { action: deny, protocol: tcp, destination: { ports: [81] } }
    - { action: allow }
`,
    );
    await until("the policy to take effect", async () => !(await reaches(81)));
    await until("an answer from the remaining port", () => reaches(80));
    t.regex(await manager.muster("policy", "status"), /\bone\b.*in-sync/);

    // A connection held from inside through the agent's death.
    const inside = ["nsenter", `--net=/run/netns/${ours}${ask}`];
    const holding = `const peer = require("net").connect(80, ${JSON.stringify(to)});
peer.on("error", () => process.exit(2));
peer.pipe(process.stdout); process.stdin.pipe(peer);`;
    const held = spawn(inside[0] as string, [...inside.slice(1), process.execPath, "-e", holding], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    t.teardown(() => held.kill("SIGKILL"));
    let heard = "";
    held.stdout.on("data", (data: Buffer) => (heard += data.toString()));
    await until("the connection", () => heard.includes(from));
    await agent.process.end("SIGKILL");
    held.stdin.write("still here\n");
    await until("the echo without an agent", () => heard.includes("still here"));
    const before = taskNamespaces(agent.dataDir);
    t.deepEqual(before.toSorted(), [ours + ask, ours + web].toSorted());
    execFileSync("ip", ["netns", "add", `${ours}orphan`]);
    agent.process.start();
    await until("the agent's next session", () => agent.sessions().length > 1);
    await until("the orphan to exit", () => !taskNamespaces(agent.dataDir).includes(`${ours}orphan`));
    t.is((await manager.json("service", "ps", "web")).length, 1);
    held.stdin.write("and after\n");
    await until("the echo with the next agent", () => heard.includes("and after"));
    await until("an answer with the next agent", () => reaches(80));
    t.false(await reaches(81));

    await manager.muster("service", "rm", "web", "ask");
    await until("all namespaces to be removed", () => taskNamespaces(agent.dataDir).length === 0);
    t.deepEqual(await links(machine), []);
    t.notRegex(await machine.run("/usr/sbin/nft", "list", "tables"), /muster-tasks/);
    held.stdin.end();
    if (held.exitCode === null) await once(held, "exit");
  },
);

/** The exec plugin of this agent. */
function execPlugin(dataDir: string): number {
  const found = processesOf(dataDir).filter((pid) => commandOf(pid).includes("drivers/exec/main.ts"));
  return found.length === 1 ? (found[0] as number) : 0;
}

real("an agent that comes back in its own mount namespace reuses the plugin of its earlier life", async (t) => {
  const { machines } = startLab(t, 1);
  const machine = machines[0] as Machine;
  const manager = await startManager(t, { on: machine });
  await manager.patience();
  const agent = await startAgent(t, manager, { on: machine, hostname: "one" });
  removeTaskNamespaces(t, agent.dataDir);
  await manager.muster("network", "create", "back");
  const create = ["service", "create", "-d", "--driver", "exec", "--network", "back", "--stop-signal", "SIGKILL"];
  await manager.muster(...create, "--name", "first", "--", "sleep", "1000");
  const first = await runs(manager, "first");
  const address = await addressOf(manager, first);
  t.not(address, "");
  const plugin = execPlugin(agent.dataDir);
  t.not(plugin, 0);
  await agent.process.end("SIGKILL");
  // As systemd does with PrivateTmp=true: mounts made there are visible only there.
  agent.process.start([...machine.inside, "unshare", "--mount", "--propagation", "private", "--"]);
  await until("the agent's next session", () => agent.sessions().length > 1);
  t.is(execPlugin(agent.dataDir), plugin);
  await manager.muster(...create, "--name", "second", "--", "sleep", "1000");
  const second = await runs(manager, "second");
  t.is((await manager.json("service", "ps", "second")).length, 1, "no attempt has failed");
  t.not(await addressOf(manager, second), "");
  t.is(await addressOf(manager, first), address);
  // The next plugin is in the agent's namespace, where nothing is mounted for the first task.
  kill(plugin);
  await until("another plugin", () => ![0, plugin].includes(execPlugin(agent.dataDir)));
  await until("the first task to answer through it", () =>
    addressOf(manager, first).then(
      (found) => found === address,
      () => false,
    ),
  );
  await manager.muster("service", "rm", "first", "second");
  await until("all namespaces to be removed", () => taskNamespaces(agent.dataDir).length === 0);
  t.deepEqual(await links(machine), []);
});
