// Traefik's own providers, at a stock manager and at ours: both derive the same routers, services and addresses from the same services.
import { execFile, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import anyTest, { type ExecutionContext } from "ava";
import { engineMissing } from "../fixtures/docker-engine.ts";
import { labMissing } from "../fixtures/lab.ts";
import { bothSides, type ManagerSide } from "../fixtures/stock-beside.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";
import { peerPath, peersMissing } from "./go/peers.ts";

const missing = engineMissing() ?? labMissing() ?? peersMissing("traefik-provider");
const test = missing === null ? anyTest.serial : anyTest.serial.skip;
const run = promisify(execFile);

/** Newest configuration that one of Traefik's providers derives at the socket, as text; empty before the first. */
function provided(t: ExecutionContext, provider: "swarm" | "docker", socket: string): () => string {
  const child = spawn(peerPath("traefik-provider"), [provider, socket], { stdio: ["pipe", "pipe", "ignore"] });
  let newest = "";
  createInterface({ input: child.stdout }).on("line", (line) => (newest = line));
  t.teardown(async () => {
    const exit = new Promise((resolve) => child.once("exit", resolve));
    child.stdin.end();
    if (child.exitCode === null) await exit;
  });
  return () => newest;
}

async function prepare({ socket }: ManagerSide): Promise<void> {
  const docker = (...words: readonly string[]) => run("docker", ["-H", `unix://${socket}`, ...words]);
  await docker("network", "create", "--driver", "overlay", "back");
  await docker("network", "create", "--driver", "overlay", "front");
  const create = async (name: string, labels: readonly string[], ...words: readonly string[]): Promise<void> => {
    const given = labels.flatMap((label) => ["--label", `traefik.${label}`, "--container-label", `traefik.${label}`]);
    const common = ["service", "create", "--detach", "--no-resolve-image", "--network", "back", "--name", name];
    await docker(...common, ...given, ...words, "bb:1", "sleep", "1000");
  };
  // Without this, an address may be that of any of its networks. One provider reads the service's labels, the other the containers'.
  const inNetwork = (name: string): readonly string[] => [
    "--label",
    `traefik.swarm.network=${name}`,
    "--container-label",
    `traefik.docker.network=${name}`,
  ];
  const port = (name: string, to: string): string => `http.services.${name}.loadbalancer.server.port=${to}`;
  await create(
    "web",
    [
      "http.routers.web.rule=Host(`web.test`) && PathPrefix(`/a`)",
      "http.routers.web.middlewares=strip",
      "http.middlewares.strip.stripprefix.prefixes=/a",
      port("web", "8080"),
    ],
    "--publish",
    "18080:80",
    "--replicas",
    "2",
    ...inNetwork("back"),
  );
  await create(
    "every",
    ["tcp.routers.every.rule=HostSNI(`*`)", "tcp.services.every.loadbalancer.server.port=5432"],
    "--mode",
    "global",
  );
  // The virtual address instead of those of the tasks.
  await create("vip", [port("vip", "81"), "swarm.lbswarm=true"], "--network", "front", ...inNetwork("front"));
  await create("dns", [port("dns", "82")], "--endpoint-mode", "dnsrr");
  await create("hidden", ["enable=false"]);
}

interface Configuration {
  readonly http?: {
    readonly services?: Readonly<Record<string, { readonly loadBalancer: { readonly servers: readonly unknown[] } }>>;
  };
  readonly tcp?: { readonly services?: Readonly<Record<string, unknown>> };
}

/** Without what differs between two clusters: ids of tasks, and the last part of addresses in a network. */
function comparable(text: string): Configuration {
  const plain = text.replaceAll(/\b[0-9a-z]{25}\b/g, "ID").replaceAll(/\b(10\.0\.\d+)\.\d+:/g, "$1.HOST:");
  return JSON.parse(plain === "" ? "{}" : plain) as Configuration;
}

test(`Traefik's providers derive a stock manager's configuration${missing === null ? "" : `: ${missing}`}`, async (t) => {
  t.timeout(patient(120_000));
  const { ours, stock } = await bothSides(t);
  // The providers start first: they notice services and containers by themselves, the one for containers by events.
  const readers = (["swarm", "docker"] as const).map((provider) => ({
    provider,
    ofStock: provided(t, provider, stock.socket),
    ofOurs: provided(t, provider, ours.socket),
  }));
  await Promise.all([prepare(stock), prepare(ours)]);
  const both = async (servers: number): Promise<readonly Configuration[]> => {
    const all = readers.flatMap(({ ofOurs, ofStock }) => [ofStock, ofOurs]);
    await until(
      `four services, of which one has ${servers} servers, in each configuration`,
      async () =>
        all.every((read) => {
          const { http, tcp } = comparable(read());
          const services = http?.services ?? {};
          const isWhole = Object.keys(services).length === 3 && Object.keys(tcp?.services ?? {}).length === 1;
          return isWhole && services["web"]?.loadBalancer.servers.length === servers;
        }),
      patient(60_000),
    );
    return readers.map(({ ofOurs, ofStock, provider }) => {
      t.deepEqual(comparable(ofOurs()), comparable(ofStock()), provider);
      return comparable(ofOurs());
    });
  };
  const [swarm] = await both(2);
  t.like(swarm, {
    http: {
      routers: { web: { rule: "Host(`web.test`) && PathPrefix(`/a`)", middlewares: ["strip"] } },
      services: { vip: { loadBalancer: { servers: [{ url: "http://10.0.2.HOST:81" }] } } },
    },
    tcp: { services: { every: { loadBalancer: { servers: [{ address: "10.0.1.HOST:5432" }] } } } },
  });
  const scale = ({ socket }: ManagerSide) =>
    run("docker", ["-H", `unix://${socket}`, "service", "scale", "--detach", "web=1"]);
  await Promise.all([scale(stock), scale(ours)]);
  await both(1);
});
