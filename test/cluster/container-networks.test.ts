// Containers of a stock engine, run by our own driver, in the cluster's networks: real namespaces and packets, on a machine
// that is itself a namespace, with the packet filter that the engine sets up.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { engineMissing, startEngine, type DockerEngine } from "../fixtures/docker-engine.ts";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { startAgent, startManager, tempDir, type TestAgent, type TestManager } from "../fixtures/muster.ts";
import { commandOf, processesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";
import { removeTaskNamespaces } from "../support/task-namespaces.ts";

const missing = labMissing() ?? engineMissing();
const real = missing === null ? test.serial : test.serial.skip;
const executable = (name: string): string => fileURLToPath(new URL(`../../bin/${name}`, import.meta.url));

/** Answers with the client's address. */
const server = `require("net").createServer((peer) => {
  peer.on("error", () => {});
  peer.write(peer.remoteAddress + "\\n");
  peer.pipe(peer);
}).listen(80, "::");`;

interface World {
  readonly machine: Machine;
  readonly docker: DockerEngine;
  readonly manager: TestManager;
  readonly agent: TestAgent;
  /** Its newest task, once running. */
  running(service: string): Promise<string>;
  /** The task's address in its first network. */
  address(task: string): Promise<string>;
  /** Output of a shell command in the task; empty if it fails. */
  says(task: string, command: string): Promise<string>;
}

async function world(t: ExecutionContext): Promise<World> {
  const { machines } = startLab(t, 1);
  const machine = machines[0] as Machine;
  const [docker, manager] = await Promise.all([startEngine(t, machine), startManager(t, { on: machine })]);
  await manager.patience();
  // The state that engines leave when they enable forwarding themselves.
  for (const filter of ["iptables", "ip6tables"]) await machine.run(`/usr/sbin/${filter}`, "-P", "FORWARD", "DROP");
  const settings = { endpoint: `unix://${join(docker.dir, "docker.sock")}`, state_dir: join(docker.dir, "notes") };
  const args = [
    ["--driver", `docker=${executable("muster-driver-docker")}`],
    ["--driver-config", `docker=${JSON.stringify(settings)}`],
    ["--dataplane-driver", executable("muster-dataplane-nft")],
  ].flat();
  const agent = await startAgent(t, manager, { on: machine, hostname: "one", args });
  // Cleans up after a failed test.
  removeTaskNamespaces(t, agent.dataDir);
  const running: World["running"] = async (service) => {
    let id = "";
    await until(`${service} to run`, async () => {
      const rows = await manager.json<{ ID: string; CurrentState: string }>("service", "ps", service, "--no-trunc");
      id = rows[0]?.ID ?? "";
      return rows[0]?.CurrentState.startsWith("Running") === true;
    });
    return id;
  };
  const address: World["address"] = async (task) => {
    const [{ NetworksAttachments }] = JSON.parse(await manager.muster("task", "inspect", task)) as [
      { NetworksAttachments: { Addresses: string[] }[] },
    ];
    return NetworksAttachments[0]?.Addresses[0]?.split("/")[0] ?? "";
  };
  const says: World["says"] = (task, command) =>
    manager.muster("task", "exec", task, "sh", "-c", command).catch(() => "");
  return { machine, docker, manager, agent, running, address, says };
}

async function links(machine: Machine): Promise<readonly string[]> {
  return (await machine.run("ip", "-o", "link")).split("\n").filter((line) => line.includes(" mst"));
}

real("containers of services reach each other in the cluster's networks, whichever process is killed", async (t) => {
  t.timeout(patient(300_000));
  const { address, agent, docker, machine, manager, running, says } = await world(t);
  await manager.muster("network", "create", "back");
  await manager.muster("network", "create", "other");
  const create = ["service", "create", "-d", "--stop-signal", "SIGKILL"];
  const flags = [
    ["--network", "back", "-p", "published=8080,target=80,mode=host", "--hostname", "w-{{.Task.Slot}}"],
    ["--host", "there:10.1.2.3", "--dns", "192.0.2.1", "--dns-search", "x.test", "--health-cmd", "true"],
    ["--health-interval", "1s"],
  ].flat();
  const serves = "httpd -f -p 80 & httpd -f -p 81; wait";
  await manager.muster(...create, "--name", "web", ...flags, "bb:1", "sh", "-c", serves);
  await manager.muster(...create, "--name", "ask", "--network", "back", "bb:1", "sleep", "1000");
  await manager.muster(...create, "--name", "far", "--network", "other", "bb:1", "sleep", "1000");
  const [web, ask, far] = [await running("web"), await running("ask"), await running("far")];
  const to = await address(web);
  const reaches = async (from: string, port: number): Promise<boolean> =>
    (await says(from, `echo GET / | nc -w 2 ${to} ${port}`)).includes("HTTP/1.");
  await until("an answer", () => reaches(ask, 80));
  await until("an answer from the other port", () => reaches(ask, 81));
  t.false(await reaches(far, 80), "networks are isolated from one another");
  await until("an answer on the node's port", () =>
    machine.fetch(`http://${machine.address}:8080/`).then(Boolean, (error: Error) => /404/.test(error.message)),
  );

  // Name files: the same as in an engine's container.
  t.is(await says(web, "cat /etc/hostname"), "w-1");
  t.regex(
    await says(web, "cat /etc/hosts"),
    new RegExp(`^${to.replaceAll(".", "\\.")}\\tw-1$[^]*^10.1.2.3\\tthere$`, "m"),
  );
  t.regex(await says(web, "cat /etc/resolv.conf"), /^search x.test$/m);
  t.regex(await says(ask, "cat /etc/hostname"), /^ask-1$/);
  await until("its name", async () => (await says(ask, "nslookup tasks.web")).includes(to));

  const file = join(tempDir(t, "policy"), "policy.yaml");
  writeFileSync(
    file,
    `kind: NetworkPolicy
metadata: { name: web }
spec:
  selector: service == 'web'
  ingress:
    - { action: deny, protocol: tcp, destination: { ports: [81] } }
    - { action: allow }
`,
  );
  await manager.muster("policy", "apply", "-f", file);
  await until("the policy to take effect", async () => !(await reaches(ask, 81)));
  await until("an answer from the remaining port", () => reaches(ask, 80));

  const containers = async (): Promise<string> =>
    (await docker.docker("ps", "-q", "--no-trunc")).split("\n").toSorted().join(" ");
  const before = await containers();
  t.is(before.split(" ").length, 6, "each task's container, and the one that holds its network");
  await agent.process.end("SIGKILL");
  const drivers = processesOf(agent.dataDir).filter((pid) => commandOf(pid).includes("drivers/docker/main.ts"));
  t.is(drivers.length, 1);
  for (const pid of drivers) process.kill(pid, "SIGKILL");
  agent.process.start();
  await until("the agent's next session", () => agent.sessions().length > 1);
  t.is((await manager.json("service", "ps", "web")).length, 1);
  await until("an answer afterwards", () => reaches(ask, 80));
  t.false(await reaches(ask, 81));
  t.is(await containers(), before);

  await manager.muster("service", "rm", "web", "ask", "far");
  await until("no container to be left", async () => (await docker.docker("ps", "-aq")) === "");
  await until("no link to be left", async () => (await links(machine)).length === 0);
});

real("a container of a driver's service shares a network with a process and has its mounts", async (t) => {
  const { address, agent, docker, machine, manager, running, says } = await world(t);
  // IPv6, which engines disable in the networks that they create.
  await manager.muster("network", "create", "--ipv6", "--subnet", "fd00:77::/64", "back");
  const create = ["service", "create", "-d", "--network", "back", "--stop-signal", "SIGKILL"];
  await manager.muster(...create, "--name", "web", "--driver", "exec", "--", process.execPath, "-e", server);
  const config = JSON.stringify({ image: "bb:1", init: true, command: "sleep", args: ["1000"] });
  const mounts = ["type=volume,source=data,target=/data", "type=tmpfs,target=/mem,tmpfs-size=65536"];
  const asked = [...mounts.flatMap((mount) => ["--mount", mount]), "--device", "/dev/null:/dev/nothing"];
  await manager.muster(...create, "--name", "box", "--driver", "docker", "--driver-config", config, ...asked);
  const [web, box] = [await running("web"), await running("box")];
  const to = await address(web);
  const answer = (): Promise<string> => says(box, `echo | nc -w 2 ${to} 80 | head -n 1`);
  await until("an answer", async () => (await answer()) !== "");
  t.is(await answer(), await address(box));
  t.regex(to, /^fd00:77:/);
  // Also by name, which it resolves through its node.
  await until("the name", async () => /fd00:77:/.test(await says(box, "nslookup -type=aaaa tasks.web")));
  await until("an answer by name", async () => (await says(box, "echo | nc -w 2 web 80 | head -n 1")) !== "");
  const script = "echo kept >/data/file; echo lost >/mem/file; cat /mem/file /proc/mounts; echo gone >/dev/nothing";
  t.regex(await says(box, script), /^lost\n[^]* \/mem tmpfs [^]*size=64k/);
  await manager.muster("service", "rm", "web", "box");
  await until("no container to be left", async () => (await docker.docker("ps", "-aq")) === "");
  await until("no link to be left", async () => (await links(machine)).length === 0);
  t.is(readFileSync(join(agent.dataDir, "local-volumes/data/file"), "utf8"), "kept\n");
});
