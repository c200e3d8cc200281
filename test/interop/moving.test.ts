// A Swarm of three stock engines, all of them managers, moves to Muster while clients send requests without a break: the steps of
// docs/moving-from-swarm.md, and the way back from each.
import { cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import anyTest from "ava";
import { startBalancer, startTraffic } from "../fixtures/balancer.ts";
import { engineMissing, startEngine, type DockerEngine } from "../fixtures/docker-engine.ts";
import { labMissing, startLab } from "../fixtures/lab.ts";
import { MusterProcess, runMuster, startManager, tempDir } from "../fixtures/muster.ts";
import { words } from "../fixtures/swarm.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const missing = engineMissing() ?? labMissing();
const test = missing === null ? anyTest.serial : anyTest.serial.skip;

/** Answers on two paths: at once, for checks; and after a while, so that some request is always open. */
const site = (name: string): readonly string[] => [
  `--env=WHO=${name} on {{.Node.Hostname}}`,
  "--stop-signal=SIGKILL",
  "bb:1",
  "sh",
  "-c",
  [
    "mkdir -p /www/cgi-bin",
    'echo "$WHO" >/www/index.html',
    `printf '#!/bin/sh\\nsleep 0.3; echo "Content-Type: text/plain\\r\\n\\r"; cat /www/index.html\\n' >/www/cgi-bin/slow`,
    "chmod +x /www/cgi-bin/slow",
    "exec httpd -f -p 80 -h /www",
  ].join(" && "),
];
/** Each with the port on which the engines that run it answer. */
const services = { every: 8080, pair: 8081 } as const;

/** A stock manager refuses an update if the node's record has changed since the client read it: as an operator would, try again. */
async function setAvailability(engine: DockerEngine, availability: "active" | "drain", node: string): Promise<void> {
  await until("the node's update", () =>
    engine.docker("node", "update", "--availability", availability, node).then(
      () => true,
      (error: unknown) => {
        if (!String(error).includes("update out of sequence")) throw error;
        return false;
      },
    ),
  );
}

test("three engines move from a Swarm to Muster and back under traffic, and no request is lost", async (t) => {
  t.timeout(patient(600_000));
  const lab = startLab(t, 3);
  const [manager, ...engines] = await Promise.all([
    startManager(t, { on: lab.hub }),
    ...lab.machines.map((machine) => startEngine(t, machine)),
  ]);
  const [first, second, third] = engines as unknown as readonly [DockerEngine, DockerEngine, DockerEngine];

  // The Swarm: a global service, and one with two replicas; Swarm starts the latter anywhere.
  await first.docker("swarm", "init", "--listen-addr", `${first.host}:2399`, "--advertise-addr", first.host);
  for (const engine of [second, third])
    await engine.join(await first.docker(...words("swarm join-token -q manager")), `${first.host}:2399`);
  await first.docker(...words("network create --driver overlay back"));
  const create = words("service create --detach --no-resolve-image --network back");
  const publish = (port: number): readonly string[] => [`--publish=mode=host,target=80,published=${port}`];
  await first.docker(...create, ...words("--name every --mode global"), ...publish(services.every), ...site("every"));
  await first.docker(...create, ...words("--name pair --replicas 2"), ...publish(services.pair), ...site("pair"));

  const nameOf = ({ host }: DockerEngine): string => lab.machines.find(({ address }) => address === host)?.name ?? "";
  const hosts = engines.map(({ host }) => host);
  const balancers = await Promise.all(Object.values(services).map((port) => startBalancer(t, lab.hub, hosts, port)));
  for (const balancer of balancers) await until("the first answer", () => balancer.fetch("/"));
  await until(
    "all tasks",
    async () => (await Promise.all(engines.map((each) => each.containers()))).flat().length === 5,
  );
  const traffic = balancers.map((balancer) => startTraffic(t, balancer, "/cgi-bin/slow", 3));

  t.regex(await manager.muster("import", "--from", `unix://${join(first.dir, "docker.sock")}`), /3 created/);

  const takeOut = async ({ host }: DockerEngine): Promise<void> => {
    for (const balancer of balancers) await balancer.takeOut(host);
  };
  /** Once each task there answers. Requests of the clients reach it then. */
  const putBack = async (engine: DockerEngine): Promise<void> => {
    const tasks = await until("the global service's task", async () => {
      const names = await engine.containers();
      return names.some((name) => name.startsWith("every.")) && names;
    });
    for (const task of tasks) {
      const port = services[task.split(".")[0] as keyof typeof services];
      await until(`an answer of ${task}`, () => lab.hub.fetch(`http://${engine.host}:${port}/`));
    }
    const answered = (): number => traffic[0]?.answers.get(`every on ${nameOf(engine)}`) ?? 0;
    const before = answered();
    for (const balancer of balancers) await balancer.putBack(engine.host);
    await until("requests to reach the engine", () => answered() > before);
  };
  const hasNoTask = async (engine: DockerEngine): Promise<void> =>
    void (await until("the tasks to end", async () => (await engine.containers()).length === 0));
  const joinMuster = async (engine: DockerEngine): Promise<void> =>
    engine.join(await manager.muster("token", "worker"), manager.address);

  const socketOf = ({ dir }: DockerEngine): string => `unix://${join(dir, "docker.sock")}`;
  /** `swarm`: a manager of the Swarm that stays there. */
  const moving = (swarm: DockerEngine, flag: "--move" | "--move-back", engine: DockerEngine): readonly string[] => [
    "--host",
    `unix://${join(manager.dataDir, "control.sock")}`,
    "import",
    "--from",
    socketOf(swarm),
    flag,
    socketOf(engine),
  ];
  const move = async (...move: Parameters<typeof moving>): Promise<string> => {
    const { code, stderr, stdout } = await runMuster(moving(...move), { timeoutMs: 240_000 });
    t.is(code, 0, stdout + stderr);
    return stdout;
  };
  const toMuster = async (engine: DockerEngine, swarm: DockerEngine): Promise<void> => {
    await takeOut(engine);
    t.regex(
      await move(swarm, "--move", engine),
      /demoting.*draining.*leaves the Swarm.*joins this cluster.*is a node of this cluster, and runs [12] tasks?/s,
    );
    await putBack(engine);
  };
  const toSwarm = async (engine: DockerEngine, swarm: DockerEngine): Promise<void> => {
    await takeOut(engine);
    await move(swarm, "--move-back", engine);
    // It comes back as a worker.
    await swarm.docker("node", "promote", (await engine.swarm()).NodeID);
    await until("the promotion", async () => (await engine.swarm()).ControlAvailable);
    await putBack(engine);
  };
  /** Ctrl-C when it has left: it is a manager of the Swarm again. */
  const turnBack = async (engine: DockerEngine, swarm: DockerEngine): Promise<void> => {
    await takeOut(engine);
    const command = new MusterProcess(manager.dataDir, moving(swarm, "--move", engine));
    t.teardown(() => command.end("SIGKILL"));
    await until("it to leave", () => command.output.includes("leaves the Swarm"));
    command.child.kill("SIGINT");
    await until("the way back", () => !command.isRunning, 120_000);
    t.is(command.child.exitCode, 1);
    t.regex(command.output, /has not moved, and is in the Swarm as before: interrupted/);
    t.true((await engine.swarm()).ControlAvailable);
    await putBack(engine);
  };
  const leaveMuster = async (engine: DockerEngine): Promise<void> => {
    const { NodeID: id } = await engine.swarm();
    await takeOut(engine);
    await manager.muster("node", "update", "--availability", "drain", id);
    await hasNoTask(engine);
    await engine.docker("swarm", "leave");
    await manager.muster("node", "rm", "--force", id);
  };

  await turnBack(first, second);
  await toMuster(first, second);
  await toSwarm(first, second);
  await toMuster(first, second);
  await toMuster(second, third);
  await toSwarm(second, third);
  await toMuster(second, third);

  const refusal = await t.throwsAsync(manager.muster("import", "--from", socketOf(third), "--move", socketOf(third)));
  t.regex(
    String(refusal),
    /is the manager that --from names: name another manager of the Swarm; the last one moves by hand/,
  );

  // The last engine has the Swarm. It can turn back until it leaves, and with a copy of the Swarm also afterwards.
  const { NodeID: last } = await third.swarm();
  const drainLast = async (): Promise<void> => {
    await takeOut(third);
    await setAvailability(third, "drain", last);
    await hasNoTask(third);
  };
  await drainLast();
  await setAvailability(third, "active", last);
  await putBack(third);
  await drainLast();
  await third.stop();
  const [state, copy] = [join(third.dir, "data", "swarm"), join(tempDir(t, "swarm"), "copy")];
  cpSync(state, copy, { recursive: true });
  await third.start();
  await third.docker("swarm", "leave", "--force");
  await joinMuster(third);
  await putBack(third);

  await leaveMuster(third);
  await third.stop();
  rmSync(state, { recursive: true });
  cpSync(copy, state, { recursive: true });
  await third.start();
  await third.docker(
    "swarm",
    "init",
    "--force-new-cluster",
    "--listen-addr",
    `${third.host}:2399`,
    "--advertise-addr",
    third.host,
  );
  await setAvailability(third, "active", last);
  await putBack(third);
  await drainLast();
  await third.docker("swarm", "leave", "--force");
  await joinMuster(third);
  await putBack(third);

  for (const each of traffic) await each.end();
  for (const { answers, lost } of traffic) {
    t.deepEqual([...lost], []);
    t.log([...answers]);
  }
});
