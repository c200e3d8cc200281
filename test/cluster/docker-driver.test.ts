// Containers of a stock engine that the agent runs through our own driver: those configured for the driver, as in the README,
// and those of container services.
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { engineMissing, startEngine, type DockerEngine } from "../fixtures/docker-engine.ts";
import { startAgent, startManager, type TestAgent, type TestManager } from "../fixtures/muster.ts";
import { mockDriver } from "../fixtures/plugin-launch.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

interface World {
  readonly engine: DockerEngine;
  readonly manager: TestManager;
  readonly agent: TestAgent;
  /** The newest task of the service. */
  newest(service: string): Promise<{ readonly CurrentState: string; readonly Error: string; readonly ID: string }>;
}

async function world(t: ExecutionContext): Promise<World> {
  const [engine, manager] = await Promise.all([startEngine(t), startManager(t)]);
  const settings = { endpoint: `unix://${join(engine.dir, "docker.sock")}`, state_dir: join(engine.dir, "notes") };
  const docker = join(mockDriver, "../muster-driver-docker");
  const agent = await startAgent(t, manager, {
    hostname: "one",
    args: ["--driver", `docker=${docker}`, "--driver-config", `docker=${JSON.stringify(settings)}`],
  });
  const newest: World["newest"] = async (service) => {
    const rows = await manager.json<Awaited<ReturnType<World["newest"]>>>("service", "ps", service, "--no-trunc");
    return rows[0] ?? { CurrentState: "", Error: "", ID: "" };
  };
  return { engine, manager, agent, newest };
}

const missing = engineMissing();
const real = (title: string, run: (t: ExecutionContext) => Promise<void>): void => {
  if (missing === null) test.serial(title, run);
  else test.skip(`${title}: ${missing}`, () => {});
};

real("a container runs through the docker driver, logs, accepts exec, and disappears with its service", async (t) => {
  const { agent, engine, manager } = await world(t);
  const config = {
    image: "bb:1",
    network_mode: "none",
    init: true,
    command: "sh",
    args: ["-c", "echo from $NOMAD_JOB_NAME; echo kept >$NOMAD_TASK_DIR/file; sleep 1000"],
  };
  const create = ["service", "create", "-d", "--name", "web", "--driver", "docker", "--stop-signal", "SIGKILL"];
  await manager.muster(...create, "--driver-config", JSON.stringify(config));
  await until("its output", async () => (await manager.muster("task", "logs", "--raw", "web.1")).trim() === "from web");
  t.is((await engine.containers()).length, 1);
  t.is(await manager.muster("task", "exec", "web.1", "sh", "-c", "cat $NOMAD_TASK_DIR/file"), "kept");
  t.regex(await manager.muster("node", "inspect", "--pretty", "one"), /docker 0.1.0 healthy/);
  await manager.muster("service", "rm", "web");
  await until("nothing to be left", () => readdirSync(join(agent.dataDir, "allocs")).length === 0);
  await until("no container to be left", async () => (await engine.docker("ps", "-aq")) === "");
});

real("a container service runs on a node of ours as on an engine, from its first state to its exit code", async (t) => {
  t.timeout(patient(300_000));
  const { agent, engine, manager, newest } = await world(t);
  const [key, conf, data] = ["key", "conf", "data"].map((name) => join(agent.dataDir, name)) as [
    string,
    string,
    string,
  ];
  writeFileSync(key, "hidden");
  writeFileSync(conf, "of {{.Service.Name}}\n");
  mkdirSync(data);
  writeFileSync(join(data, "file"), "bound\n");
  await manager.muster("secret", "create", "key", key);
  await manager.muster("config", "create", "--template-driver", "golang", "conf", conf);
  const script =
    'echo "$A $NOMAD_JOB_ID. $(hostname) $(pwd) $(id -u)"; cat /run/secrets/key /etc/conf /data/file; touch /scratch/ok; exec sleep 1000';
  const flags = [
    ["--env", "A=${B} {{.Task.Slot}}"],
    ["--hostname", "h-{{.Task.Slot}}"],
    ["--workdir", "/tmp"],
    ["--user", "1000:1000"],
    ["--read-only"],
    ["--secret", "source=key,uid=1000,mode=0400"],
    ["--config", "source=conf,target=/etc/conf"],
    ["--mount", "type=tmpfs,target=/scratch,tmpfs-mode=1777"],
    ["--mount", `type=bind,source=${data},target=/data,readonly`],
    ["--mount", "type=volume,source=v-{{.Task.Slot}},target=/vol"],
    ["--ulimit", "nofile=100:200"],
    ["--cap-drop", "CHOWN"],
    ["--host", "there:10.1.2.3"],
    ["--container-label", "tier=front"],
    ["--stop-signal", "SIGKILL"],
    ["--init"],
    ["--health-cmd", "test -e /scratch/ok"],
    ["--health-interval", "300ms"],
    ["--health-retries", "1"],
    ["--health-start-period", "20s"],
    ["--restart-delay", "0s"],
  ].flat();
  await manager.muster("service", "create", "-d", "--name", "web", ...flags, "bb:1", "sh", "-c", script);
  await until(
    "the container to become healthy",
    async () => (await newest("web")).CurrentState.startsWith("Running"),
    60_000,
  );
  t.deepEqual((await manager.muster("service", "logs", "--raw", "web")).split("\n"), [
    "${B} 1 . h-1 /tmp 1000",
    "hiddenof web",
    "bound",
  ]);
  const { ID: first } = await newest("web");
  const [id = ""] = (
    await engine.docker("ps", "-q", "--no-trunc", "--filter", `label=com.docker.swarm.task.id=${first}`)
  ).split("\n");
  const [task] = JSON.parse(await manager.muster("task", "inspect", first)) as [
    { Status: { ContainerStatus: { ContainerID: string; PID: number } } },
  ];
  t.is(task.Status.ContainerStatus.ContainerID, id);
  const [{ Config, HostConfig, Mounts, State }] = JSON.parse(await engine.docker("inspect", id)) as [
    {
      Config: { Labels: Record<string, string> };
      HostConfig: Record<string, unknown>;
      Mounts: { Name?: string; Destination: string }[];
      State: { Pid: number };
    },
  ];
  t.is(task.Status.ContainerStatus.PID, State.Pid);
  t.like(Config.Labels, { tier: "front", "com.docker.swarm.service.name": "web" });
  t.like(HostConfig, {
    ReadonlyRootfs: true,
    Init: true,
    CapDrop: ["CAP_CHOWN"],
    ExtraHosts: ["there:10.1.2.3"],
    CpuShares: 0,
    Memory: 0,
  });
  t.deepEqual(HostConfig["Ulimits"], [{ Name: "nofile", Hard: 200, Soft: 100 }]);
  t.is(Mounts.find(({ Destination }) => Destination === "/vol")?.Name, "v-1");
  t.is(await manager.muster("task", "exec", "web.1", "cat", "/run/secrets/key"), "hidden");

  // An unhealthy container fails, and another follows.
  await engine.docker("exec", "-u", "0", id, "busybox", "rm", "/scratch/ok");
  await until("the next container", async () => (await newest("web")).ID !== first, 60_000);
  const rows = await manager.json<{ ID: string; Error: string; CurrentState: string }>(
    "service",
    "ps",
    "web",
    "--no-trunc",
  );
  const failed = rows.find(({ ID }) => ID === first);
  t.regex(`${failed?.CurrentState} ${failed?.Error}`, /^Failed .*unhealthy container/);

  await manager.muster(
    "service",
    "create",
    "-d",
    "--name",
    "ends",
    "--restart-condition",
    "none",
    "bb:1",
    "sh",
    "-c",
    "exit 7",
  );
  await until("its end", async () => /exit \(7\)/.test((await newest("ends")).Error), 60_000);

  // A task that exits with success before its first health check is complete.
  const slow = ["--health-cmd", "true", "--health-interval", "1h", "--restart-condition", "none"];
  await manager.muster("service", "create", "-d", "--name", "done", ...slow, "bb:1", "true");
  await until("its work", async () => (await newest("done")).CurrentState.startsWith("Complete"), 60_000);

  // Features that only a swarm's engines have are scheduled there.
  await manager.muster("service", "create", "-d", "--name", "wide", "-p", "80", "bb:1", "sleep", "1000");
  await until("the reason", async () => /missing plugin/.test((await newest("wide")).Error), 60_000);
  t.regex(await manager.muster("why", "wide.1"), /node one: has no routing mesh/);

  await manager.muster("service", "rm", "web", "ends", "done", "wide");
  await until("nothing to be left", () => readdirSync(join(agent.dataDir, "allocs")).length === 0, 60_000);
  t.is(await engine.docker("ps", "-aq"), "");

  await engine.stop();
  await manager.muster("service", "create", "-d", "--name", "late", "bb:1", "sleep", "1000");
  await until(
    "the driver's report",
    async () => /its driver docker is /.test(await manager.muster("why", "late.1")),
    60_000,
  );
  t.regex((await newest("late")).CurrentState, /^Pending/);
});
