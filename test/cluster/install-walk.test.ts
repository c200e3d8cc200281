// The walk of docs/install.md from nothing to three machines: its own commands, in the order of the page, each on its machine.
import { execFile } from "node:child_process";
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { MusterProcess, tempDir } from "../fixtures/muster.ts";
import { endProcessesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const missing = labMissing() ?? engineMissing();
const real = missing === null ? test.serial : test.serial.skip;
const top = fileURLToPath(new URL("../..", import.meta.url));
const run = promisify(execFile);

interface Step {
  /** Last number of the machine's address. */
  readonly machine: string;
  readonly command: string;
}

/** The lines of the section's shell blocks. */
function steps(): readonly Step[] {
  const page = readFileSync(join(top, "docs", "install.md"), "utf8");
  const [, section = ""] = page.split("\n## Three machines\n");
  const [walk = ""] = section.split("\n## ");
  const blocks = [...walk.matchAll(/```sh\n(.*?)```/gs)].map(([, block = ""]) => block);
  return blocks.flatMap((block) =>
    block
      .trim()
      .split("\n")
      .map((line) => {
        const [, command = "", machine = ""] = /^(.+?) +# on 192\.0\.2\.(\d)\b/.exec(line) ?? [];
        if (command === "") throw new Error(`the page does not say on which machine to run: ${line}`);
        return { machine, command };
      }),
  );
}

/** The page's machines are those of the lab, and its folders are in one of the test for each machine. */
function host(t: ExecutionContext, machine: Machine, engine: string) {
  const root = tempDir(t, "machine");
  // Tasks run as another user, and pass through it to their folders.
  chmodSync(root, 0o755);
  const bin = join(root, "bin");
  mkdirSync(bin);
  mkdirSync(join(root, "etc"));
  const program = join(bin, "muster");
  writeFileSync(program, `#!/bin/sh\nexec "${process.execPath}" "${top}cli/main.ts" "$@"\n`);
  chmodSync(program, 0o755);
  const env = {
    PATH: `${bin}:${process.env["PATH"] ?? ""}`,
    XDG_STATE_HOME: join(root, "state"),
    DOCKER_HOST: engine,
    // The command would look there by itself, in the folder that the page names.
    MUSTER_HOST: `unix://${join(root, "manager", "control.sock")}`,
  };
  const here = (command: string): string =>
    command
      .replaceAll(/192\.0\.2\.(\d)/g, (_, number: string) => machine.address.replace(/\d$/, number))
      .replaceAll(/\/var\/lib\/muster\/|\/etc\//g, (folder) => join(root, folder === "/etc/" ? "etc/" : "/"));
  return {
    etc: join(root, "etc"),
    /** Resolves with what it prints. */
    run: async (command: string): Promise<string> => {
      const [file, ...rest] = [...machine.inside, "sh", "-c", here(command)];
      const { stdout } = await run(file, rest, { env: { ...process.env, ...env }, timeout: patient(60_000) });
      return stdout;
    },
    start: (command: string): MusterProcess => {
      const [, ...args] = here(command).split(" ");
      const dataDir = args[args.indexOf("--data-dir") + 1] ?? "";
      const started = new MusterProcess(dataDir, args, env, machine.inside);
      t.teardown(async () => {
        await started.end();
        await endProcessesOf(dataDir);
      });
      return started;
    },
  };
}

real("the commands of the page make a cluster of three machines with an engine and an agent", async (t) => {
  t.timeout(patient(900_000));
  const startedAt = performance.now();
  const { machines } = startLab(t, 3);
  const [one, two, three] = machines as [Machine, Machine, Machine];
  const engine = await startEngine(t, three);
  const socket = `unix://${join(engine.dir, "docker.sock")}`;
  const hosts = new Map([one, two, three].map((machine, at) => [String(at + 1), host(t, machine, socket)]));
  const printed = new Map<string, string>();
  const managers: string[] = [];
  for (const { command, machine } of steps()) {
    const there = hosts.get(machine);
    if (there === undefined) throw new Error(`no machine ${machine}`);
    if (machine !== "1" && !existsSync(join(there.etc, "muster")))
      cpSync(join(hosts.get("1")?.etc ?? "", "muster"), join(there.etc, "muster"), { recursive: true });
    if (/^muster (?:manager|agent) /.test(command)) {
      const started = there.start(command);
      const says = command.startsWith("muster agent") ? "session" : "manager is serving";
      await until(`"${says}"`, () => !started.isRunning || started.output.includes(says));
      t.true(started.isRunning, started.output);
      if (command.startsWith("muster manager")) managers.push(machine);
      continue;
    }
    if (command === "muster info") {
      const copies = async (): Promise<boolean> => /3 of 3 copies current/.test(await there.run(command));
      await until("three copies", () => copies().catch(() => false), 120_000);
    }
    if (command === "muster node ls") {
      const ready = async (): Promise<number> => (await there.run(command)).match(/ Ready /g)?.length ?? 0;
      await until("five nodes", async () => (await ready()) === 5);
    }
    printed.set(command, await there.run(command));
  }
  t.deepEqual(managers, ["1", "2", "3"]);
  const nodes = printed.get("muster node ls") ?? "";
  t.is(nodes.match(/ (?:Leader|Reachable) /g)?.length, 3, nodes);
  t.regex(printed.get("muster doctor --cluster") ?? "", /^ok +copies: 3 of 3 copies of the log are current$/m);
  const first = hosts.get("1");
  await until("the service", async () => /\b1\/1\b/.test((await first?.run("muster service ls")) ?? ""));
  t.log(`${Math.round((performance.now() - startedAt) / 1_000)} s from nothing to a running service`);
});
