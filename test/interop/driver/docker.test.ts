// The docker driver with the test's own stock engine: what every driver must do, and what only containers do.
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  closeSync,
  constants,
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { containerName } from "../../../drivers/docker/container.ts";
import { Engine, EngineError } from "../../../drivers/docker/engine.ts";
import { driverFields, taskFields, type DockerConfig } from "../../../drivers/docker/fields.ts";
import { DockerPlugin } from "../../../drivers/docker/plugin.ts";
import type { DockerRun } from "../../../drivers/docker/run.ts";
import { objectSpec, readConfig } from "../../../edges/plugin/server/fields.ts";
import type { TaskRequest } from "../../../edges/plugin/server/index.ts";
import {
  CreateNetworkRequest,
  DNSConfig,
  DestroyNetworkRequest,
  HostsConfig,
  LinuxResources,
  Mount,
  NetworkIsolationSpec,
  NomadDriverConfig,
  PortMapping,
  Resources,
  TaskConfig,
} from "../../../proto/gen/nomad.ts";
import type { ConfigInput } from "../../../lib/hclspec/index.ts";
import { isRecoverable } from "../../../runtime/recoverable.ts";
import type { RpcError } from "../../../runtime/ports/rpc.ts";
import { engineMissing, startEngine, type DockerEngine } from "../../fixtures/docker-engine.ts";
import { mockDriver, packed } from "../../fixtures/plugin-launch.ts";
import { until } from "../../fixtures/until.ts";
import { conformance } from "./conformance.ts";

const missing = engineMissing();
const withEngine = missing === null ? test : test.skip;

let engine: DockerEngine;
const ends: (() => Promise<void>)[] = [];

if (missing === null) {
  // The fixture's engine belongs to one test; all tests of this file share this one.
  const owner = { teardown: (end: () => Promise<void>) => void ends.push(end) } as unknown as ExecutionContext;
  test.before(async () => {
    engine = await startEngine(owner);
  });
  test.after.always(async () => {
    for (const end of ends) await end();
  });
}

const driverConfig = (): ConfigInput => ({
  endpoint: `unix://${join(engine.dir, "docker.sock")}`,
  state_dir: join(engine.dir, "notes"),
});

const image = { image: "bb:1", network_mode: "none", init: true };

/** The kernel drops signals to a container's first process, Docker's init, until that handles them; then it starts the command. */
const untilSleepRuns = (container: string): Promise<unknown> =>
  until("the command to run", async () => /^(?!.*docker-init).*sleep/m.test(await engine.docker("top", container)));

if (missing === null) {
  conformance({
    name: "docker",
    path: join(dirname(mockDriver), "muster-driver-docker"),
    get config() {
      return driverConfig();
    },
    lasting: { ...image, command: "sleep", args: ["60"] },
    failing: { ...image, command: "sh", args: ["-c", "exit 3"] },
    stubborn: { ...image, command: "sh", args: ["-c", "trap '' TERM INT; while :; do sleep 1; done"] },
    terminated: { exitCode: 143, signal: 15 },
    receivesSignals: (config) => untilSleepRuns(containerName({ id: config.id, task: config })),
    recovers: true,
    terminals: true,
  });
}

interface Lab {
  readonly folder: string;
  readonly plugin: DockerPlugin;
  readonly told: string[];
  request(config: ConfigInput, task?: Partial<TaskConfig>): TaskRequest<DockerConfig>;
  start(config: ConfigInput, task?: Partial<TaskConfig>): Promise<DockerRun>;
}

let count = 0;

function lab(t: ExecutionContext): Lab {
  const folder = mkdtempSync(join(tmpdir(), "muster-docker-"));
  const plugin = new DockerPlugin();
  plugin.configure(
    readConfig(driverFields, packed(objectSpec(driverFields), driverConfig())),
    NomadDriverConfig.create(),
  );
  const runs: DockerRun[] = [];
  const told: string[] = [];
  t.teardown(async () => {
    await Promise.all(runs.map((run) => run.stop("", 0)));
    await Promise.all(runs.map((run) => run.destroy()));
    rmSync(folder, { recursive: true, force: true });
  });
  const request: Lab["request"] = (config, task = {}) => {
    const id = `a1/web/${process.pid}-${(count += 1)}`;
    return {
      id,
      config: readConfig(taskFields, packed(objectSpec(taskFields), { ...image, ...(config as object) })),
      task: TaskConfig.create({ id, name: "web", ...task }),
      log: { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} },
      tell: (message) => void told.push(message),
    };
  };
  return {
    folder,
    plugin,
    told,
    request,
    async start(config, task) {
      const run = await plugin.start(request(config, task));
      runs.push(run);
      return run;
    },
  };
}

const sh = (script: string): ConfigInput => ({ command: "sh", args: ["-c", script] });

withEngine("docker: output goes to the host's files, and resumes after the driver was killed", async (t) => {
  const { folder, plugin, request, start } = lab(t);
  const [stdoutPath, stderrPath] = [join(folder, "stdout"), join(folder, "stderr")];
  execFileSync("mkfifo", [stdoutPath]);
  writeFileSync(stderrPath, "");
  const reader = openSync(stdoutPath, constants.O_RDONLY | constants.O_NONBLOCK);
  const task = { stdoutPath, stderrPath };
  const run = await start(sh("echo one; echo two >&2; read x </dev/zero & sleep 3; echo three; exit 5"), task);
  let text = "";
  const bytes = Buffer.alloc(65_536);
  const readMore = (): string => {
    try {
      text += bytes.toString("utf8", 0, readSync(reader, bytes));
    } catch {
      // No output yet.
    }
    return text;
  };
  await until("the first line", () => readMore() === "one\n");
  await until("the other stream", () => readFileSync(stderrPath, "utf8") === "two\n");
  // Recorded: the next process continues after it.
  await until("a note", () => existsSync(join(engine.dir, "notes", String(run.attributes["container_name"]))));
  const again = await plugin.recover({ ...request({}, task), id: request({}).id }, run.state);
  t.is((await run.exited).exitCode, 5);
  t.is((await again.exited).exitCode, 5);
  // Each of the two may write the last line; output written before the record may repeat at any time.
  t.regex(readMore(), /^one\n/);
  t.regex(text.split("\n").toSorted().join(" "), /^ one (one )?three three$/);
  closeSync(reader);
});

withEngine("docker: a container has its environment, user, limits, mounts and ports", async (t) => {
  const { folder, start } = lab(t);
  chmodSync(folder, 0o755);
  writeFileSync(join(folder, "file"), "content\n");
  const stdoutPath = join(folder, "stdout");
  writeFileSync(stdoutPath, "");
  const run = await start(
    {
      ...(sh("echo $NAME $(cat /data/file); sleep 60") as object),
      ports: ["http"],
      hostname: "web-1",
      network_mode: null,
    },
    {
      env: { NAME: "a b" },
      user: "1000:1000",
      stdoutPath,
      mounts: [Mount.create({ hostPath: folder, taskPath: "/data", readonly: true })],
      resources: Resources.create({
        linuxResources: LinuxResources.create({ memoryLimitBytes: 32 * 1024 * 1024, cpuShares: 512 }),
        ports: [PortMapping.create({ label: "http", value: 28_080, to: 80 })],
      }),
    },
  );
  await until("its output", () => readFileSync(stdoutPath, "utf8") !== "");
  t.is(readFileSync(stdoutPath, "utf8"), "a b content\n");
  const [found] = JSON.parse(await engine.docker("inspect", run.state.containerId)) as Record<string, never>[];
  t.like(found, {
    Config: { User: "1000:1000", Hostname: "web-1" },
    HostConfig: { Memory: 32 * 1024 * 1024, CpuShares: 512, PortBindings: { "80/tcp": [{ HostPort: "28080" }] } },
  });
  await t.throwsAsync(start({ ports: ["absent"] }), { message: /no port with the label "absent"/ });
  await t.throwsAsync(start({ privileged: true }), { message: /privileged containers are not allowed/ });
});

withEngine("docker: a terminal has the requested size", async (t) => {
  const { start } = lab(t);
  const run = await start(sh("sleep 60"));
  let text = "";
  const session = await run.exec({
    command: [
      "sh",
      "-c",
      "echo here; until [ \"$(stty size 2>/dev/null)\" = '50 132' ]; do sleep 0.1; done; read x; echo $x; exit 43",
    ],
    terminal: { rows: 24, columns: 80 },
    output: (_stream, bytes) => {
      text += Buffer.from(bytes).toString("utf8");
      return true;
    },
    onDrain: () => {},
  });
  await until("the command", () => text.includes("here"));
  session.resize({ rows: 50, columns: 132 });
  session.write(Buffer.from("x\n"));
  t.is((await session.exited).exitCode, 43);
  t.is(text, "here\r\nx\r\nx\r\n");
});

withEngine("docker: an out-of-memory kill is reported, and a start without its image may be retried", async (t) => {
  const { start, told } = lab(t);
  const resources = Resources.create({ linuxResources: LinuxResources.create({ memoryLimitBytes: 8 * 1024 * 1024 }) });
  // On a busy machine, Docker's supervisor of the container misses the event if it reads after the cgroup is gone.
  const noticed = async (): Promise<boolean> => {
    const run = await start({ ...(sh("x=a; while :; do x=$x$x; done") as object), init: false }, { resources });
    const exit = await run.exited;
    const { containerId } = run.state;
    const oomKilled = (await engine.docker("inspect", "-f", "{{.State.OOMKilled}}", containerId)) === "true";
    t.deepEqual({ ...exit, err: "" }, { exitCode: 137, signal: 9, oomKilled, err: "" });
    return oomKilled;
  };
  await until("the engine to notice the out-of-memory kill", noticed);
  t.regex(told.join(), /exceeded its memory limit/);
  const error = await t.throwsAsync(start({ image: "127.0.0.1:1/absent:1" }), {
    message: /cannot pull 127.0.0.1:1.absent:1/,
  });
  t.true(isRecoverable(error as RpcError));
  t.true(told.includes("pulling 127.0.0.1:1/absent:1"));
});

withEngine("docker: a start whose answer was lost finds its container, and a failed one leaves none", async (t) => {
  const { plugin, request } = lab(t);
  const wanted = request(sh("sleep 60"));
  const [first, second] = [await plugin.start(wanted), await plugin.start(wanted)];
  t.is(second.state.containerId, first.state.containerId);
  await untilSleepRuns(first.state.containerId);
  await second.stop("SIGTERM", 5_000);
  t.is((await first.exited).signal, 15);
  await first.destroy();
  const wrong = request({ command: "/no/such/file", init: false });
  await t.throwsAsync(async () => plugin.start(wrong), { message: /no such file/ });
  t.is(await engine.docker("ps", "-aq", "--filter", `label=io.muster.task=${wrong.id}`), "");
  t.throws(() => new Engine("http://x"), { message: /invalid endpoint/ });
  await t.throwsAsync(new Engine("unix:///no/such/socket").version(), { instanceOf: EngineError });
});

withEngine("docker: tasks of a group share the network that the driver creates for it", async (t) => {
  const { plugin, start } = lab(t);
  const asked = CreateNetworkRequest.create({ allocId: `group-${process.pid}`, hostname: "group" });
  const { isolationSpec, created } = await plugin.createNetwork(asked);
  t.true(created);
  t.false((await plugin.createNetwork(asked)).created);
  const run = await start(sh("sleep 60"), { networkIsolationSpec: isolationSpec });
  const [found] = JSON.parse(await engine.docker("inspect", run.state.containerId)) as { HostConfig: object }[];
  const id = isolationSpec?.labels["docker_sandbox_container_id"];
  t.like(found?.HostConfig, { NetworkMode: `container:${id}` });
  await run.stop("", 0);
  await plugin.destroyNetwork(DestroyNetworkRequest.create({ allocId: asked.allocId, isolationSpec }));
  t.false((await engine.docker("ps", "-aq", "--no-trunc")).includes(String(id)));
  await plugin.destroyNetwork(DestroyNetworkRequest.create({ allocId: asked.allocId, isolationSpec }));
});

withEngine("docker: the network's holder needs no registry, exits on request, and costs next to nothing", async (t) => {
  const { plugin } = lab(t);
  const asked = ["one", "two"].map((name) => CreateNetworkRequest.create({ allocId: `${name}-${process.pid}` }));
  // Concurrently, each as the first: the image is created once.
  await Promise.all(asked.map((request) => plugin.createNetwork(request)));
  const images = await engine.docker("images", "--format", "{{.Repository}} {{.Size}}", "muster-pause");
  t.is(images, "muster-pause 256B");
  const [first = "", second = ""] = asked.map(({ allocId }) => `muster-network-${allocId}`);
  const [{ State }] = JSON.parse(await engine.docker("inspect", first)) as [{ State: { Pid: number } }];
  const status = readFileSync(`/proc/${State.Pid}/status`, "utf8");
  t.true(Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0) < 100, status);
  t.regex(status, /^CapEff:\s+0{16}$/m);
  await engine.docker("stop", "--time", "120", first);
  const [stopped] = JSON.parse(await engine.docker("inspect", first)) as [{ State: { ExitCode: number } }];
  t.is(stopped.State.ExitCode, 0, "by itself: a killed one has 137");
  // DN1: a host that never received the answer can still have the network removed.
  for (const { allocId } of asked) await plugin.destroyNetwork(DestroyNetworkRequest.create({ allocId }));
  const names = await engine.docker("ps", "-a", "--format", "{{.Names}}");
  t.false(names.includes(first) || names.includes(second));
});

withEngine("docker: a container in a shared network has its own hosts file and name servers", async (t) => {
  const { folder, plugin, start } = lab(t);
  chmodSync(folder, 0o755);
  const asked = CreateNetworkRequest.create({ allocId: `names-${process.pid}`, hostname: "web-1" });
  const { isolationSpec } = await plugin.createNetwork(asked);
  t.teardown(() => plugin.destroyNetwork(DestroyNetworkRequest.create({ allocId: asked.allocId, isolationSpec })));
  const stdoutPath = join(folder, "stdout");
  writeFileSync(stdoutPath, "");
  const networkIsolationSpec = NetworkIsolationSpec.patch(isolationSpec ?? NetworkIsolationSpec.create(), {
    hostsConfig: HostsConfig.create({ hostname: "web-1", address: "10.1.0.9" }),
  });
  const task = {
    networkIsolationSpec,
    stdoutPath,
    allocDir: folder,
    allocId: asked.allocId,
    dns: DNSConfig.create({ servers: ["192.0.2.1"], searches: ["x.test"] }),
  };
  const config = { ...(sh("cat /etc/resolv.conf /etc/hosts /etc/hostname; sleep 60") as object), network_mode: null };
  const run = await start({ ...config, extra_hosts: ["there:10.1.2.3"], dns_options: ["ndots:3"] }, task);
  await until("its output", () => readFileSync(stdoutPath, "utf8").endsWith("there\nweb-1\n"));
  const said = readFileSync(stdoutPath, "utf8");
  t.regex(said, /^nameserver 192.0.2.1\nsearch x.test\noptions ndots:3\n127.0.0.1\tlocalhost\n/);
  t.regex(said, /^10.1.0.9\tweb-1$/m);
  t.regex(said, /^10.1.2.3\tthere$/m);
  const both = await engine.docker("ps", "-q", "--filter", `label=io.muster.alloc=${asked.allocId}`);
  t.is(both.split("\n").length, 2, "the task's and the one that holds its network");
  await run.stop("", 0);
  await t.throwsAsync(start({ ...config, extra_hosts: ["there:host-gateway"] }, task), { message: /host-gateway/ });
  await t.throwsAsync(start({ ...config, dns_servers: ["a b"] }, task), { message: /for resolv.conf/ });
});

if (missing !== null) test.skip(`the driver docker: ${missing}`, () => {});
