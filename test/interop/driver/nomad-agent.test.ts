/** Our exec driver under a whole Nomad agent, where that is built: `npm run peers -- nomad`. */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import anyTest, { type ExecutionContext } from "ava";
import { tempDir } from "../../fixtures/muster.ts";
import { freePorts } from "../../fixtures/ports.ts";
import { commandOf, endProcessesOf, isAlive, kill, processesWith } from "../../fixtures/processes.ts";
import { until } from "../../fixtures/until.ts";
import { unplaceChroot } from "../../../linux/task-home/chroot.ts";
import { patient } from "../../support/slowness.ts";
import { peerPath } from "../go/peers.ts";
import { processesCalled } from "./nomad-outlives.ts";

const isPossible = existsSync(peerPath("nomad")) && process.getuid?.() === 0;
const test = isPossible ? anyTest.serial : anyTest.serial.skip;

const executable = fileURLToPath(new URL("../../../bin/muster-driver-exec", import.meta.url));

interface NomadAgent {
  readonly plugins: () => readonly number[];
  /** Runs `nomad ARGS…` against the agent; resolves with its standard output. */
  readonly nomad: (...args: readonly string[]) => Promise<string>;
  readonly get: <Answer>(path: string) => Promise<Answer>;
  /** Sends the signal, waits for the exit, and starts the agent again with the same data. */
  readonly restart: (signal: NodeJS.Signals) => Promise<void>;
}

/** A Nomad server and client in one process, with our exec driver as a plugin; its tasks end with the test. */
async function startNomad(t: ExecutionContext): Promise<NomadAgent> {
  const dir = tempDir(t, "nomad-agent");
  const [data, plugins] = [join(dir, "data"), join(dir, "plugins")];
  mkdirSync(plugins);
  symlinkSync(executable, join(plugins, "muster-driver-exec"));
  const [http = 0, rpc = 0, serf = 0] = await freePorts(3);
  const config = {
    data_dir: data,
    bind_addr: "127.0.0.1",
    // Nomad refuses to guess a loopback address.
    advertise: { http: "127.0.0.1", rpc: "127.0.0.1", serf: "127.0.0.1" },
    ports: { http, rpc, serf },
    plugin_dir: plugins,
    disable_update_check: true,
    leave_on_terminate: false,
    server: { enabled: true, bootstrap_expect: 1 },
    client: {
      enabled: true,
      network_interface: "lo",
      servers: [`127.0.0.1:${rpc}`],
      // The denied ones ask servers beyond this machine: a cloud's metadata, Consul, Vault.
      options: {
        "driver.allowlist": "exec,muster-exec",
        "fingerprint.denylist": "consul,env_aws,env_azure,env_digitalocean,env_gce,vault",
      },
    },
    consul: { auto_advertise: false, client_auto_join: false, server_auto_join: false },
    plugin: [{ "muster-driver-exec": [{ config: [{ state_dir: join(dir, "driver") }] }] }],
  };
  writeFileSync(join(dir, "agent.json"), JSON.stringify(config));
  let output = "";
  const start = (): ChildProcess => {
    const child = spawn(peerPath("nomad"), ["agent", "-config", join(dir, "agent.json")], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: process.env["PATH"], HOME: dir },
    });
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk: Buffer) => (output += chunk.toString()));
    return child;
  };
  let child = start();
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, "exit");
    child.kill(signal);
    await exit;
  };
  t.teardown(async () => {
    if (!t.passed) t.log(output.slice(-8_000));
    await end("SIGKILL");
    for (const pid of processesWith(`HOME=${dir}`)) kill(pid);
    await endProcessesOf(dir);
    // Nomad mounts each task's secrets.
    await unplaceChroot(dir);
  });
  const address = `http://127.0.0.1:${http}`;
  const get = async <Answer>(path: string): Promise<Answer> => {
    const response = await fetch(`${address}${path}`);
    if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
    return (await response.json()) as Answer;
  };
  const nomad = async (...args: readonly string[]): Promise<string> =>
    (await promisify(execFile)(peerPath("nomad"), args, { env: { ...process.env, NOMAD_ADDR: address } })).stdout;
  const isReady = async (): Promise<boolean> => {
    if (child.exitCode !== null) throw new Error(`Nomad's agent has exited: ${output}`);
    const nodes = await get<readonly { readonly Status: string }[]>("/v1/nodes");
    return nodes.length === 1 && nodes[0]?.Status === "ready";
  };
  const ready = (): Promise<boolean> => until("a Nomad node that is ready", isReady);
  await ready();
  return {
    plugins: () => processesWith(`HOME=${dir}`).filter((pid) => commandOf(pid).includes("drivers/exec/main.ts")),
    nomad,
    get,
    restart: async (signal) => {
      await end(signal);
      child = start();
      await ready();
    },
  };
}

interface NodeDrivers {
  readonly Drivers: Readonly<Record<string, { readonly Detected: boolean; readonly Healthy: boolean }>>;
}

test("a task of muster-exec keeps its process while Nomad's agent and the plugin are killed and restarted", async (t) => {
  t.timeout(patient(300_000));
  const { get, nomad, plugins, restart } = await startNomad(t);

  const drivers = async (): Promise<NodeDrivers["Drivers"]> => {
    const [node] = await get<readonly { readonly ID: string }[]>("/v1/nodes");
    return (await get<NodeDrivers>(`/v1/node/${node?.ID}`)).Drivers;
  };
  const both = await until("both drivers to be healthy", async () => {
    const all = await drivers();
    return all["muster-exec"]?.Healthy === true && all["exec"] !== undefined && all;
  });
  t.true(both["muster-exec"]?.Detected);
  t.true(both["exec"]?.Detected, "Nomad's own exec keeps its name");

  const seconds = String(7_000_000 + (process.pid % 1_000_000));
  const job = {
    Job: {
      ID: "long",
      Datacenters: ["*"],
      TaskGroups: [
        {
          Name: "group",
          Tasks: [
            {
              Name: "task",
              Driver: "muster-exec",
              Config: { command: "/bin/sh", args: ["-c", `echo started as $(id -un); exec sleep ${seconds}`] },
            },
          ],
        },
      ],
    },
  };
  const file = join(tempDir(t, "nomad-job"), "long.json");
  writeFileSync(file, JSON.stringify(job));
  await nomad("job", "run", "-detach", "-json", file);

  interface Allocation {
    readonly ID: string;
    readonly ClientStatus: string;
  }
  const allocations = (): Promise<readonly Allocation[]> => get("/v1/job/long/allocations");
  const running = async (): Promise<Allocation | null> => {
    const all = await allocations();
    return all.length === 1 && all[0]?.ClientStatus === "running" ? all[0] : null;
  };
  const { ID } = await until("the task to run", running);
  const processes = processesCalled(`sleep ${seconds}`);
  const [pid] = await until("its process", () => (processes().length === 1 ? processes() : null));

  t.is(await until("its output", () => nomad("alloc", "logs", ID)), "started as nobody\n");

  const isSame = async (what: string): Promise<void> => {
    const answer = (): Promise<string> => nomad("alloc", "exec", "-i=false", "-t=false", ID, "echo", "hello");
    t.is(await until(`a command in the task after ${what}`, answer), "hello\n", what);
    t.deepEqual(processes(), [pid], what);
    t.is((await running())?.ID, ID, what);
  };
  await isSame("its start");
  for (const signal of ["SIGKILL", "SIGTERM"] as const) {
    const [plugin] = plugins();
    kill(plugin as number, signal);
    await until("the plugin to exit", () => !isAlive(plugin as number));
    await until("the next plugin", () => plugins().length === 1);
    await isSame(`${signal} of the plugin`);
  }
  for (const signal of ["SIGKILL", "SIGTERM"] as const) {
    await restart(signal);
    await isSame(`${signal} of the agent`);
  }

  await nomad("job", "stop", "-detach", "long");
  await until("the task to end", () => processes().length === 0);
});
