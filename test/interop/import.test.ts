// Moving a stock Swarm: `muster import` takes over what it has, and its engine then joins and runs the services.
import { execFile } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import anyTest from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { startManager, tempDir } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const test = engineMissing() === null ? anyTest.serial : anyTest.serial.skip;
const run = promisify(execFile);

/** The spec of a service, with names in place of ids. */
async function specOf(socket: string, service: string): Promise<unknown> {
  const docker = async (...words: string[]): Promise<string> =>
    (await run("docker", ["-H", `unix://${socket}`, ...words])).stdout.trim();
  let text = await docker("service", "inspect", "--format", "{{json .Spec}}", service);
  for (const kind of ["network", "secret", "config"])
    for (const line of (
      await docker(kind, "ls", ...(kind === "network" ? ["--no-trunc"] : []), "--format", "{{.ID}} {{.Name}}")
    ).split("\n")) {
      const [id = "", name = ""] = line.split(" ");
      if (id !== "") text = text.replaceAll(id, `${kind}/${name}`);
    }
  return JSON.parse(text);
}

const missing = "a Swarm does not show its value: put it into a file of this name";

test("a Swarm's objects are taken over by name, and its engine joins and runs them", async (t) => {
  t.timeout(patient(300_000));
  const [engine, manager] = await Promise.all([startEngine(t), startManager(t)]);
  await manager.ready();
  const listen = `${engine.host}:${await freePort()}`;
  await engine.docker("swarm", "init", "--listen-addr", listen, "--advertise-addr", engine.host);
  const dir = tempDir(t, "import");
  writeFileSync(join(dir, "text"), "of the swarm\n");
  const swarm = `unix://${join(engine.dir, "docker.sock")}`;
  const ours = join(manager.dataDir, "docker.sock");
  const theirs = join(engine.dir, "docker.sock");

  const subnet = ["--subnet", "10.88.0.0/24", "--opt", "x=y", "--label", "net=label", "--attachable"];
  await engine.docker("network", "create", "-d", "overlay", ...subnet, "back");
  await engine.docker("config", "create", "--label", "a=b", "conf", join(dir, "text"));
  await engine.docker("secret", "create", "word", join(dir, "text"));
  for (const name of ["filed", "unused"]) await engine.docker("secret", "create", name, join(dir, "text"));
  const create = ["service", "create", "-d", "--no-resolve-image"];
  const flags = [
    "--replicas",
    "2",
    "--network",
    "back",
    "--config",
    "source=conf,target=/etc/conf",
    "--secret",
    "source=word,target=word",
    "--secret",
    "source=filed,target=/etc/filed,mode=0400,uid=1000",
  ];
  const more = ["--env", "A=b", "--label", "s=l", "--limit-memory", "64m", "--update-order", "start-first"];
  const script = "cat /etc/conf /run/secrets/word /etc/filed; sleep 1000";
  await engine.docker(
    ...create,
    "--name",
    "web",
    ...flags,
    ...more,
    "--stop-signal",
    "KILL",
    "bb:1",
    "sh",
    "-c",
    script,
  );
  await engine.docker(...create, "--name", "every", "--mode", "global", "--publish", "80", "bb:1", "sleep", "1000");

  // Without the secret's value, nothing is created.
  const refused = await t.throwsAsync<Error & { stdout: string; stderr: string }>(
    manager.muster("import", "--from", swarm),
  );
  t.regex(refused?.stderr ?? "", /nothing was created/);
  t.regex(refused?.stdout ?? "", new RegExp(`secret +word +BLOCKED +${missing}`));
  t.regex(refused?.stdout ?? "", /service +web +BLOCKED +its secret word is blocked, its secret filed is blocked/);
  t.is(await manager.muster("service", "ls", "-q"), "");
  t.is(await manager.muster("network", "ls", "--filter", "name=back", "-q"), "");

  const values = join(dir, "values");
  mkdirSync(values);
  // A file has precedence over the containers that mount the secret; no container mounts the unused one.
  writeFileSync(join(values, "filed"), "hidden\n");
  const taken = ["import", "--from", swarm, "--secrets", values, "--secrets-from-containers"];
  const plan = async (): Promise<string> => manager.muster(...taken, "--dry-run");
  await until("the secret in a container", async () =>
    /secret +word +create +its value is from container/.test(await plan()),
  );
  t.regex(await plan(), new RegExp(`secret +unused +BLOCKED +${missing}`));
  t.regex(await plan(), /secret +filed +create *\n/);
  writeFileSync(join(values, "unused"), "not read\n");
  t.regex(await plan(), /service +web +create/);
  t.is(await manager.muster("service", "ls", "-q"), "");
  t.regex(await manager.muster(...taken), /7 created, 0 left alone or blocked$/);
  t.regex(await manager.muster(...taken), /0 created, 7 left alone or blocked$/, "an import can be repeated");

  t.deepEqual(await specOf(ours, "web"), await specOf(theirs, "web"));
  // The port that the Swarm has chosen is kept.
  const port = await engine.docker(
    "service",
    "inspect",
    "--format",
    "{{(index .Endpoint.Ports 0).PublishedPort}}",
    "every",
  );
  const every = (await specOf(ours, "every")) as {
    readonly EndpointSpec: { readonly Ports: readonly { readonly PublishedPort?: number }[] };
  };
  t.is(every.EndpointSpec.Ports[0]?.PublishedPort, Number(port));
  const [network] = JSON.parse(
    (await run("docker", ["-H", `unix://${ours}`, "network", "inspect", "back"])).stdout,
  ) as readonly { readonly IPAM: { readonly Config: readonly { readonly Subnet: string }[] } }[];
  t.like(network, { Attachable: true, Labels: { net: "label" }, Options: { x: "y" } } as never);
  t.is(network?.IPAM.Config[0]?.Subnet, "10.88.0.0/24");

  // The engine moves, and runs the services with the same contents.
  await engine.docker("swarm", "leave", "--force");
  await engine.join(await manager.muster("token", "worker"), manager.address);
  await until(
    "the services to run",
    async () => {
      const rows = await manager.json<{ Name: string; Replicas: string }>("service", "ls");
      return (
        rows
          .map(({ Name, Replicas }) => `${Name} ${Replicas}`)
          .toSorted()
          .join() === "every 1/1,web 2/2"
      );
    },
    patient(120_000),
  );
  await until("the output", async () =>
    /of the swarm\nof the swarm\nhidden/.test(await manager.muster("service", "logs", "--raw", "web")),
  );
});

test("a host that is not a Swarm's manager is named", async (t) => {
  const [engine, manager] = await Promise.all([startEngine(t), startManager(t)]);
  await manager.ready();
  const refused = async (from: string): Promise<string> =>
    (await t.throwsAsync<Error & { stderr: string }>(manager.muster("import", "--from", from)))?.stderr ?? "";
  t.regex(
    await refused(`unix://${join(engine.dir, "docker.sock")}`),
    /cannot read the Swarm: This node is not a swarm manager/,
  );
  t.regex(await refused("unix:///absent/docker.sock"), /cannot read the Swarm: the engine at .* ENOENT/);
  t.regex(await refused("ssh://x"), /invalid endpoint/);
});
