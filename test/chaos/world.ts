/** The cluster under test: three nats-servers, three managers and six agents, each on a machine of its own. */
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  ControlService,
  CreateServiceRequest,
  type Cluster,
  ListClustersRequest,
  NodeStatus_State,
  type Node,
} from "../../proto/gen/messages.ts";
import { ask, nodes, runningTasks, sleepers } from "../fixtures/control-client.ts";
import { startLab } from "../fixtures/lab.ts";
import { deployed, natsFlags } from "../fixtures/nats-cluster.ts";
import { observe, type Observer } from "../fixtures/nats-observer.ts";
import { currentNats } from "../fixtures/nats-server.ts";
import { until } from "../fixtures/until.ts";
import { type Folders, Place, type Role } from "./place.ts";

const main = fileURLToPath(new URL("../../cli/main.ts", import.meta.url));
const mebibyte = 1 << 20;
/** Holds a run's log and snapshots several times over, yet fills within a moment. */
const natsDiskBytes = 256 * mebibyte;
const otherDiskBytes = 64 * mebibyte;
const natsPort = 4222;
const routePort = 6222;
const managerPort = 2377;
const metricsPort = 9100;
/** Slots of the services that run throughout. */
export const services: readonly { readonly name: string; readonly replicas: number }[] = [
  { name: "web", replicas: 12 },
  { name: "db", replicas: 6 },
];
/** Longer than any run: tasks never exit by themselves. */
const taskSeconds = 10_000_000;
/** Generous: the machine may be busy. */
const startMsMax = 300_000;

export interface World {
  readonly nats: readonly Place[];
  readonly managers: readonly Place[];
  readonly agents: readonly Place[];
  readonly all: readonly Place[];
  readonly observer: Observer;
  /** Version of the nats-servers. */
  readonly natsVersion: string;
  place(name: string): Place;
  /** URL of a manager's or an agent's `/healthz`. */
  healthUrl(place: Place): string;
}

export async function startWorld(folder: string, say: (line: string) => void): Promise<World> {
  const folders: Folders = { disks: join(folder, "disks"), logs: join(folder, "logs"), run: join(folder, "run") };
  for (const path of Object.values(folders)) mkdirSync(path);
  // All images are in memory: nothing here waits for the real disk.
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=3G", "chaos-disks", folders.disks]);
  const { machines } = startLab({ teardown: () => {} }, 12, { hub: "here" });
  const binary = currentNats;
  const natsVersion = execFileSync(binary, ["--version"], { encoding: "utf8" }).trim().replace(/^.*v/, "");
  const hosts = machines.slice(0, 3).map(({ address }) => address);
  const { configOf, ...certificates } = deployed(join(folder, "certificates"), binary, hosts);
  const urls = hosts.map((host) => `nats://${host}:${natsPort}`);
  const tokens = { manager: "", worker: "" };

  const place = (name: string, role: Role, command: (place: Place) => readonly string[]): Place => {
    const machine = machines[places.length];
    if (machine === undefined) throw new Error("too few machines");
    const diskBytes = role === "nats" ? natsDiskBytes : otherDiskBytes;
    const made = new Place({ name, role, machine, folders, diskBytes, command });
    places.push(made);
    return made;
  };
  const places: Place[] = [];
  const addressOf = (at: number): string => `${machines[at]?.address}:${managerPort}`;
  const nats = [1, 2, 3].map((n) =>
    place(`n${n}`, "nats", ({ dataDir }) => {
      const file = join(folder, `n${n}.conf`);
      const sites = hosts.map((host, at) => ({
        name: `n${at + 1}`,
        host,
        port: natsPort,
        routePort,
        storage: dataDir,
      }));
      const site = sites[n - 1];
      if (site !== undefined) writeFileSync(file, configOf(site, sites));
      return [binary, "-c", file];
    }),
  );
  const managers = [1, 2, 3].map((n) =>
    place(`m${n}`, "manager", ({ dataDir, machine: { address } }) => {
      const listen = ["--listen", `${address}:${managerPort}`, "--advertise", address];
      // Needed by machines without an identity: all others at first, and any that has lost its disk later.
      const join_ = tokens.manager === "" ? [] : ["--join", addressOf(n === 1 ? 4 : 3), "--token", tokens.manager];
      const metrics = ["--metrics", `${address}:${metricsPort}`];
      const flags = [...listen, ...metrics, ...natsFlags(urls, certificates), ...join_];
      return [process.execPath, main, "manager", "--data-dir", dataDir, ...flags];
    }),
  );
  const agents = [1, 2, 3, 4, 5, 6].map((n) =>
    place(`a${n}`, "agent", ({ name, dataDir, machine: { address } }) => {
      const join_ = ["--join", addressOf(3 + (n % 3)), "--token", tokens.worker];
      const metrics = ["--metrics", `${address}:${metricsPort}`];
      return [process.execPath, main, "agent", "--data-dir", dataDir, "--hostname", name, ...metrics, ...join_];
    }),
  );

  for (const each of nats) each.process.start();
  const [first, ...others] = managers as [Place, ...Place[]];
  first.process.start();
  const cluster = await until("the first manager", async () => founded(first), startMsMax);
  tokens.manager = cluster.rootCa?.joinTokens?.manager ?? "";
  tokens.worker = cluster.rootCa?.joinTokens?.worker ?? "";
  for (const each of others) each.process.start();
  for (const each of others) await until(`the manager ${each.name}`, async () => founded(each), startMsMax);
  for (const each of agents) each.process.start();
  const isReady = ({ status }: Node): boolean => status?.state === NodeStatus_State.READY;
  const count = managers.length + agents.length;
  await until("six agents", async () => (await nodes(first)).filter(isReady).length === count, startMsMax);
  for (const { name, replicas } of services) {
    const spec = sleepers(name, replicas, taskSeconds);
    await ask(first, ControlService.methods.CreateService, CreateServiceRequest.create({ spec }));
  }
  const wanted = services.reduce((sum, { replicas }) => sum + replicas, 0);
  await until("all tasks", async () => (await runningTasks(first)).length === wanted, startMsMax);
  const { ca: caFile, certificate: certFile, key: keyFile } = certificates;
  const observer = await observe({ teardown: () => {} }, urls, { caFile, certFile, keyFile });
  say(`nats-server ${natsVersion}, ${places.length} machines, ${wanted} tasks`);
  return {
    nats,
    managers,
    agents,
    all: places,
    observer,
    natsVersion,
    place: (name) => {
      const found = places.find((each) => each.name === name);
      if (found === undefined) throw new Error(`no machine has the name ${name}`);
      return found;
    },
    healthUrl: ({ machine: { address } }) => `http://${address}:${metricsPort}/healthz`,
  };
}

async function founded(manager: Place): Promise<Cluster | null> {
  const { clusters } = await ask(manager, ControlService.methods.ListClusters, ListClustersRequest.create({}), 5_000);
  return clusters[0] ?? null;
}
