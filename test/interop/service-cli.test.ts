// The same flags given to Docker's client and to ours, on one stock dockerd manager: the resulting specs are equal.
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import anyTest, { type ExecutionContext } from "ava";
import { connectUnix } from "../../edges/grpc/client.ts";
import { ControlService, ListServicesRequest, ServiceSpec } from "../../proto/gen/messages.ts";
import { engineMissing, startEngine, type DockerEngine } from "../fixtures/docker-engine.ts";
import { plainControlSocket } from "../fixtures/stock-control.ts";
import { patient } from "../support/slowness.ts";

const missing = engineMissing();
const test = missing === null ? anyTest.serial : anyTest.serial.skip;
const run = promisify(execFile);
const muster = fileURLToPath(new URL("../../bin/muster", import.meta.url));

/** Each list is passed to `service create`; `FILE` is an environment file. */
const creations: readonly (readonly string[])[] = [
  ["bb:1"],
  ["bb:1", "sleep", "-x", "1000"],
  ["--replicas", "3", "--label", "a=b", "-l", "c", "--container-label", "d=e=f", "bb:1"],
  ["--mode", "global", "--restart-condition", "none", "bb:1"],
  ["--mode", "replicated-job", "bb:1"],
  ["--mode", "replicated-job", "--replicas", "5", "bb:1"],
  ["--mode", "replicated-job", "--replicas", "5", "--max-concurrent", "2", "bb:1"],
  ["--mode", "replicated-job", "--max-concurrent", "2", "bb:1"],
  ["--mode", "global-job", "bb:1"],
  ["-e", "A=1", "-e", "B=2", "-e", "A=3", "-e", "HOME", "-e", "NOT_SET_HERE", "--env-file", "FILE", "bb:1"],
  [
    "--entrypoint",
    `sh -c "a  b" 'c"d' e\\ f`,
    "--workdir",
    "/w",
    "--user",
    "u:g",
    "--hostname",
    "h-{{.Task.Slot}}",
    "bb:1",
  ],
  [
    "--stop-signal",
    "INT",
    "--stop-grace-period",
    "1m2.5s",
    "--tty",
    "--read-only",
    "--init",
    "--group",
    "z",
    "--group",
    "a",
    "bb:1",
  ],
  ["--init=false", "--tty=false", "--read-only=true", "bb:1"],
  ["--log-driver", "json-file", "--log-opt", "max-size=1m", "--log-opt", "x", "bb:1"],
  ["--log-opt", "max-size=1m", "bb:1"],
  ["--cap-add", "net_admin", "--cap-add", "CAP_SYS_TIME", "--cap-drop", "net_admin", "--cap-drop", "chown", "bb:1"],
  ["--cap-add", "all", "--cap-add", "chown", "--cap-drop", "ALL", "bb:1"],
  [
    "--sysctl",
    "net.core.somaxconn=1024",
    "--ulimit",
    "nofile=10:20",
    "--ulimit",
    "core=5",
    "--limit-pids",
    "9",
    "bb:1",
  ],
  ["--credential-spec", "file://x.json", "--isolation", "default", "bb:1"],
  ["--credential-spec", "registry://key", "bb:1"],
  ["--credential-spec", "config://settings", "--config", "settings", "bb:1"],
  ["--health-cmd", "curl -f x", "--health-retries", "3", "bb:1"],
  ["--health-interval", "5s", "--health-timeout", "1500ms", "--health-start-period", "2m", "bb:1"],
  ["--no-healthcheck", "bb:1"],
  ["--limit-cpu", "0.5", "--limit-memory", "64m", "--reserve-cpu", ".25", "--reserve-memory", "8MiB", "bb:1"],
  ["--generic-resource", "gpu=2", "--generic-resource", "ssd=1", "bb:1"],
  [
    "--constraint",
    "node.role==manager",
    "--constraint",
    "node.labels.a!=b",
    "--placement-pref",
    "spread=node.labels.z",
    "bb:1",
  ],
  [
    "--replicas-max-per-node",
    "2",
    "--placement-pref",
    "spread=node.labels.z",
    "--placement-pref",
    "spread=node.labels.a",
    "bb:1",
  ],
  ["--restart-delay", "1s", "bb:1"],
  ["--restart-condition", "on-failure", "--restart-max-attempts", "3", "--restart-window", "10s", "bb:1"],
  ["--update-order", "start-first", "bb:1"],
  [
    "--update-parallelism",
    "0",
    "--update-delay",
    "2s",
    "--update-failure-action",
    "rollback",
    "--update-max-failure-ratio",
    "0.3",
    "bb:1",
  ],
  [
    "--update-monitor",
    "9s",
    "--rollback-delay",
    "1s",
    "--rollback-monitor",
    "3s",
    "--rollback-failure-action",
    "continue",
    "bb:1",
  ],
  ["--rollback-parallelism", "2", "--rollback-max-failure-ratio", ".5", "--rollback-order", "start-first", "bb:1"],
  ["--endpoint-mode", "dnsrr", "--publish", "mode=host,target=80,published=20080", "bb:1"],
  ["-p", "20001:80", "-p", "81/udp", "--publish", "published=20002,target=82,protocol=sctp", "bb:1"],
  ["-p", "20010-20012:90-92", "bb:1"],
  ["--network", "blue", "--network", "name=green,alias=x,alias=y,driver-opt=a=b=c", "bb:1"],
  [
    "--dns",
    "1.2.3.4",
    "--dns-option",
    "ndots:2",
    "--dns-search",
    "a.b",
    "--host",
    "db:10.0.0.1",
    "--host",
    "six:fd00::1",
    "bb:1",
  ],
  ["--secret", "key", "--secret", "source=key,target=/run/k,uid=1,gid=2,mode=0400", "bb:1"],
  ["--config", "settings", "--config", "src=settings,target=/etc/s,mode=288", "bb:1"],
  ["--mount", "type=volume,source=v,target=/v", "--mount", "type=volume,target=/w,volume-nocopy", "bb:1"],
  ["--mount", "type=volume,src=v,dst=/v,volume-driver=local,volume-label=a=b,volume-label=c,volume-opt=x=y", "bb:1"],
  ["--mount", `type=volume,source=v,target=/v,"volume-opt=o=a,b"`, "bb:1"],
  ["--mount", "type=bind,source=/a,destination=/b,ro,bind-propagation=rslave", "bb:1"],
  ["--mount", "type=bind,source=/a,target=/b,readonly=false,bind-recursive=disabled", "bb:1"],
  ["--mount", "type=tmpfs,target=/t,tmpfs-size=1.5m,tmpfs-mode=1770", "bb:1"],
];

/** A service created with the first list, and its successive updates. */
const updates: readonly { readonly from: readonly string[]; readonly steps: readonly (readonly string[])[] }[] = [
  {
    from: ["-e", "A=1", "-e", "B=2", "-l", "a=1", "-l", "b=2", "--container-label", "c=1", "bb:1", "x"],
    steps: [
      ["--env-rm", "B", "--env-add", "A=3", "--label-rm", "a", "--label-add", "c=d", "--container-label-rm", "c"],
      ["--image", "bb:2", "--args", `a "b c"`, "--entrypoint", "", "--replicas", "0", "--force"],
      ["--workdir", "/w", "--user", "u", "--hostname", "h", "--stop-signal", "INT", "--stop-grace-period", "3s"],
      ["--tty", "--read-only", "--init", "--isolation", "default", "--group-add", "b", "--group-add", "a"],
      ["--tty=false", "--group-rm", "b", "--init=false", "--user", ""],
    ],
  },
  {
    from: ["--limit-cpu", "1", "--constraint", "node.id!=z", "bb:1"],
    steps: [
      ["--limit-memory", "64m", "--limit-pids", "5", "--reserve-cpu", "0.5"],
      ["--constraint-add", "node.id!=b", "--constraint-add", "node.id!=a", "--constraint-rm", "node.id!=z"],
      ["--placement-pref-add", "spread=node.labels.a", "--placement-pref-add", "spread=node.labels.b"],
      ["--placement-pref-rm", "spread=node.labels.a", "--replicas-max-per-node", "2"],
      ["--generic-resource-add", "gpu=1"],
      ["--generic-resource-add", "gpu=3"],
      ["--generic-resource-rm", "gpu"],
      ["--restart-max-attempts", "2"],
      ["--restart-condition", "none", "--restart-window", "3s"],
      ["--update-delay", "3s", "--rollback-order", "start-first"],
      ["--update-order", "start-first", "--rollback-monitor", "1s", "--update-max-failure-ratio", "0.1"],
      ["--log-driver", "none"],
      ["--log-opt", "a=b"],
    ],
  },
  {
    from: ["-p", "20001:80", "--publish", "mode=host,target=81,published=20002", "bb:1"],
    steps: [
      ["--publish-add", "20003:80", "--publish-add", "82/udp"],
      ["--publish-add", "20003:80"],
      ["--publish-rm", "80"],
      ["--publish-rm", "mode=host,target=81", "--publish-rm", "82/udp", "--publish-add", "20009:9"],
      ["--publish-rm", "9", "--endpoint-mode", "dnsrr"],
    ],
  },
  {
    from: ["--mount", "type=volume,source=b,target=/b", "--mount", "type=volume,source=a,target=/a", "bb:1"],
    steps: [
      ["--mount-add", "type=bind,source=/z,target=/a", "--mount-add", "type=tmpfs,target=/t"],
      ["--mount-rm", "/b", "--mount-rm", "/t"],
      ["--mount-rm", "/a"],
    ],
  },
  {
    from: [
      "--dns",
      "1.1.1.1",
      "--host",
      "a:1.2.3.4",
      "--sysctl",
      "a.b=1",
      "--ulimit",
      "nofile=5",
      "--cap-drop",
      "chown",
      "bb:1",
    ],
    steps: [
      ["--dns-add", "1.0.0.1", "--dns-option-add", "x", "--dns-search-add", "a.b", "--host-add", "b:1.2.3.4"],
      ["--dns-rm", "1.1.1.1", "--dns-search-rm", "a.b", "--host-rm", "a", "--host-add", "a:5.6.7.8"],
      ["--sysctl-add", "c.d=2", "--sysctl-rm", "a.b", "--ulimit-add", "core=1:2", "--ulimit-add", "nofile=9"],
      ["--ulimit-rm", "nofile", "--cap-add", "chown", "--cap-add", "net_admin"],
      ["--cap-add", "chown"],
      ["--cap-drop", "net_admin", "--cap-add", "RESET"],
      ["--host-rm", "b:9.9.9.9"],
      ["--host-rm", "b:1.2.3.4"],
    ],
  },
  {
    from: ["--network", "blue", "--secret", "key", "--config", "settings", "bb:1"],
    steps: [
      ["--network-add", "name=green,alias=g", "--secret-add", "source=key,target=k2"],
      ["--network-rm", "blue", "--secret-rm", "key", "--config-rm", "settings"],
      ["--credential-spec", "config://settings"],
      ["--config-add", "source=settings,target=other"],
      ["--credential-spec", "file://x"],
      ["--credential-spec", ""],
    ],
  },
  {
    from: ["--health-cmd", "a", "bb:1"],
    steps: [
      ["--health-interval", "3s", "--health-cmd", "b"],
      ["--no-healthcheck"],
      ["--health-retries", "4"],
      ["--health-cmd", ""],
    ],
  },
];

interface Clients {
  readonly engine: DockerEngine;
  /** The manager's spec of a service, without the name, with maps and messages in a fixed order. */
  spec(name: string): Promise<unknown>;
  docker(...args: readonly string[]): Promise<void>;
  muster(...args: readonly string[]): Promise<void>;
}

/** Docker's client writes these lists in the order of a Go map, which is random. */
const inAnyOrder = new Set(["env", "secrets", "configs", "ports", "generic"]);

function comparable(spec: ServiceSpec): unknown {
  const ordered = (value: unknown, key = ""): unknown => {
    if (Array.isArray(value)) {
      const items = value.map((item) => ordered(item));
      if (!inAnyOrder.has(key)) return items;
      return items.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
    }
    if (typeof value !== "object" || value === null) return value;
    const entries = Object.entries(value).map(([name, item]) => [name, ordered(item, name)] as const);
    return Object.fromEntries(entries.toSorted(([a], [b]) => (a < b ? -1 : 1)));
  };
  const json = ServiceSpec.toJson(spec);
  delete (json["annotations"] as Record<string, unknown>)["name"];
  return ordered(json);
}

/** Retries if the allocator wrote meanwhile; stock managers report that only in the error text. */
async function whenUnchanged(call: () => Promise<unknown>): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      await call();
      return;
    } catch (error) {
      if (attempt >= 10 || !String(error).includes("update out of sequence")) throw error;
    }
  }
}

async function clients(t: ExecutionContext): Promise<Clients> {
  const engine = await startEngine(t);
  await engine.docker("swarm", "init", "--advertise-addr", engine.host, "--listen-addr", `${engine.host}:2399`);
  for (const network of ["blue", "green"]) await engine.docker("network", "create", "-d", "overlay", network);
  const file = join(engine.dir, "content");
  writeFileSync(file, "# a file of variables\n\nA=file\n  C=d e\nLANG\nNOT_SET_HERE\n");
  await engine.docker("secret", "create", "key", file);
  await engine.docker("config", "create", "settings", file);
  const socket = await plainControlSocket(t, engine);
  const withFile = (args: readonly string[]): string[] => args.map((arg) => (arg === "FILE" ? file : arg));
  return {
    engine,
    async spec(name) {
      const channel = await connectUnix(socket);
      try {
        const request = ListServicesRequest.create({});
        const { services } = await channel.unary(ControlService.methods.ListServices, request, { timeoutMs: 60_000 });
        const found = services.find(({ spec }) => spec?.annotations?.name === name)?.spec;
        if (found == null) throw new Error(`no service ${name}`);
        return comparable(found);
      } finally {
        channel.close();
      }
    },
    docker: (...args) => whenUnchanged(() => engine.docker(...withFile(args))),
    muster: (...args) => whenUnchanged(() => run(muster, ["-H", socket, ...withFile(args)], { timeout: 60_000 })),
  };
}

test("service create produces the spec of Docker's client, whatever the flags", async (t) => {
  t.timeout(patient(300_000));
  const { docker, muster: ours, spec } = await clients(t);
  for (const flags of creations) {
    const head = ["service", "create", "--detach", "--no-resolve-image", "--name"];
    await docker(...head, "theirs", ...flags);
    const expected = await spec("theirs");
    // Both would publish the same ports.
    await docker("service", "rm", "theirs");
    await ours(...head, "ours", ...flags);
    t.deepEqual(await spec("ours"), expected, flags.join(" "));
    await docker("service", "rm", "ours");
  }
});

test("service update changes a spec as Docker's client does, step by step", async (t) => {
  t.timeout(patient(300_000));
  const { docker, muster: ours, spec } = await clients(t);
  for (const { from, steps } of updates) {
    const made = async (call: (...args: readonly string[]) => Promise<void>): Promise<unknown[]> => {
      await call("service", "create", "--detach", "--no-resolve-image", "--name", "web", ...from);
      const specs: unknown[] = [];
      for (const flags of steps) {
        await call("service", "update", "--detach", "--no-resolve-image", ...flags, "web");
        specs.push(await spec("web"));
      }
      await docker("service", "rm", "web");
      return specs;
    };
    const [expected, actual] = [await made(docker), await made(ours)];
    for (const [at, flags] of steps.entries()) t.deepEqual(actual[at], expected[at], flags.join(" "));
  }
});
