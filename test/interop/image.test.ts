// The container image with a stock engine: built without one, loaded, and run by the Compose file of deploy/compose/.
import { execFile, execFileSync, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { labMissing, startLab } from "../fixtures/lab.ts";
import { tempDir } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const run = promisify(execFile);
const top = fileURLToPath(new URL("../../", import.meta.url));
const folder = join(top, "deploy/compose");

function works(command: string, ...args: readonly string[]): boolean {
  return spawnSync(command, args, { stdio: "ignore" }).status === 0;
}

/** Six processes start at once, and the log moves to a cluster meanwhile. In milliseconds. */
const clusterMs = 180_000;

/** The command line of Compose: the plugin, or Debian's package. */
const compose = works("docker", "compose", "version") ? ["docker", "compose"] : ["docker-compose"];

function missing(): string | null {
  const [command = "", ...args] = compose;
  if (!works(command, ...args, "version")) return "needs docker-compose";
  if (!process.env["MUSTER_IMAGE_BASE"]) return "needs Debian's packages: npm run package -- image-base";
  return engineMissing() ?? labMissing();
}

(missing() === null ? test.serial : test.serial.skip)(
  "the image runs three managers and an agent by the Compose file, and a stack on them",
  async (t) => {
    t.timeout(patient(900_000));
    const out = tempDir(t, "image");
    const { stdout } = await run(process.execPath, [join(top, "tools/package/main.ts"), "oci", "--out", out]);
    const [machine] = startLab(t, 1).machines;
    const engine = await startEngine(t, machine);
    t.regex(await engine.docker("load", "--quiet", "--input", stdout.trim()), /Loaded image: muster:/);
    const [image = ""] = (await engine.docker("images", "--format", "{{.Repository}}:{{.Tag}}", "muster")).split("\n");

    const inImage = (...command: readonly string[]) =>
      engine.docker("run", "--rm", "--network", "none", "--entrypoint", "sh", image, "-euc", command.join("\n"));
    t.regex(await inImage("muster version"), /^muster \d.*\n[^]*nats-server +2\.\d/);
    t.is(await inImage("id -un"), "muster");
    t.is(await inImage("find / -xdev -perm /6000"), "", "no program changes its user");
    // Each with its libraries.
    await t.notThrowsAsync(
      inImage(
        "ip -V",
        "bridge -V",
        "nft --version",
        "perl -e 1",
        "unshare --version",
        "nsenter --version",
        "mount --version",
        "umount --version",
        "mkfifo /tmp/pipe",
      ),
    );

    const [command = "", ...args] = compose;
    const env = { ...process.env, DOCKER_HOST: `unix://${join(engine.dir, "docker.sock")}`, MUSTER_IMAGE: image };
    const project = [...args, "-p", "trial", "-f", join(folder, "compose.yaml")];
    const composed = (...words: readonly string[]) => run(command, [...project, ...words], { env });
    await composed("up", "--detach");
    t.teardown(() => composed("down", "--volumes", "--timeout", "5").catch(() => undefined));
    const containers = await engine.docker("ps", "--format", "{{.Names}}");
    const nameOf = (service: string): string =>
      containers.split("\n").find((name) => name.includes(service)) ?? `no container of ${service}`;
    const muster = (service: string, ...words: readonly string[]) =>
      engine.docker("exec", nameOf(service), "muster", ...words);
    await until(
      "three managers and an agent",
      async () => {
        const listed = await muster("manager-1", "node", "ls");
        const managers = listed.match(/ Ready .*(?:Leader|Reachable)/g)?.length;
        if (managers !== 3 || !/ agent-1 +Ready +Active/.test(listed)) throw new Error(listed);
        return true;
      },
      clusterMs,
    );
    await until(
      "three copies of the log",
      async () => {
        const format = "{{json .Warnings}}";
        const warnings = await muster("manager-1", "info", "--format", format);
        if (warnings.includes("one replica")) throw new Error(warnings);
        return true;
      },
      clusterMs,
    );

    // As the page says it, with the stack on standard input.
    t.regex((await composed("exec", "-T", "manager-1", "muster", "node", "ls")).stdout, / agent-1 /);
    const deploy = ["muster", "stack", "deploy", "-d", "-c", "-", "trial"];
    execFileSync(command, [...project, "exec", "-T", "manager-1", ...deploy], {
      env,
      input: readFileSync(join(folder, "stack.yaml")),
      stdio: ["pipe", "ignore", "pipe"],
    });
    const isRunning = (service: string) => async () =>
      (await muster(service, "stack", "ps", "trial").catch(() => "")).match(/ Running +Running /g)?.length === 2;
    await until("the tasks of the stack", isRunning("manager-1"));

    await engine.docker("kill", nameOf("manager-1"));
    await until("another leader, which accepts a change", () =>
      muster("manager-2", "service", "scale", "-d", "trial_clock=1"),
    );
    await composed("stop", "--timeout", "20");
    const ended = await engine.docker("inspect", "--format", "{{.State.ExitCode}}", nameOf("manager-2"));
    t.is(ended, "0", "a manager ends in order");
  },
);
