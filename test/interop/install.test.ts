// The commands of docs/install.md from nothing to a cluster, each on its machine: a network namespace with its own address.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, readFileSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { labMissing, startLab } from "../fixtures/lab.ts";
import { tempDir } from "../fixtures/muster.ts";
import { currentNats } from "../fixtures/nats-server.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const top = fileURLToPath(new URL("../../", import.meta.url));
const page = readFileSync(join(top, "docs/install.md"), "utf8");

interface Step {
  /** 1 to 5. */
  readonly machine: number;
  readonly line: string;
}

/** The lines of the block below that title, with the machine that the comment above them names. */
function steps(title: string): readonly Step[] {
  const [, block = ""] = new RegExp(`^## ${title}$[^]*?\n\`\`\`sh\n([^]*?)\`\`\``, "m").exec(page) ?? [];
  const found: Step[] = [];
  let machine = 0;
  for (const line of block.trim().split("\n")) {
    const [, number] = /^# 192\.0\.2\.(\d)\b/.exec(line) ?? [];
    if (number !== undefined) machine = Number(number);
    else found.push({ machine, line });
  }
  return found;
}

/** For a command, until the processes before it serve. In milliseconds. */
const stepMs = 120_000;

const missing = engineMissing() ?? labMissing();

(missing === null ? test.serial : test.serial.skip)(
  "the page's commands make a cluster of three managers, an engine and an agent",
  async (t) => {
    t.timeout(patient(600_000));
    const lab = startLab(t, 5);
    const machines = lab.machines.map((machine, at) => ({ ...machine, home: tempDir(t, `machine${at + 1}`) }));
    // Copied from machine to machine by the reader of the page.
    const shared = tempDir(t, "tokens");
    const engine = await startEngine(t, lab.machines[3]);
    const programs = tempDir(t, "programs");
    symlinkSync(join(top, "bin/muster"), join(programs, "muster"));
    symlinkSync(currentNats, join(programs, "nats-server"));
    chmodSync(programs, 0o755);
    let ended = "";
    const run = async ({ machine: number, line }: Step): Promise<string> => {
      const machine = machines[number - 1];
      if (machine === undefined) throw new Error(`the page names no machine for: ${line}`);
      const { home } = machine;
      const script = line.replaceAll(
        /\b192\.0\.2\.(\d)\b/g,
        (_, digit: string) => machines[Number(digit) - 1]?.address ?? "",
      );
      const isProcess = script.endsWith("&");
      // Each machine has its own /var/lib, where a command finds the manager of its machine.
      const mounted =
        'mount -t tmpfs muster /var/lib; mkdir /var/lib/muster; mount --bind "$0" /var/lib/muster; exec sh -euc "$1"';
      // A process ends with everything that it has started: its nats-server, and tasks.
      const whole = isProcess ? ["--pid", "--fork", "--kill-child", "--mount-proc"] : [];
      const [command = "", ...inside] = [...machine.inside, "unshare", "--mount", ...whole, "sh", "-euc", mounted];
      inside.push(home, isProcess ? `exec ${script.slice(0, -1)}` : script);
      const child = spawn(command, inside, {
        cwd: shared,
        env: {
          ...process.env,
          PATH: `${programs}:${dirname(process.execPath)}:${process.env["PATH"] ?? ""}`,
          XDG_STATE_HOME: home,
          DOCKER_HOST: `unix://${join(engine.dir, "docker.sock")}`,
        },
        stdio: ["ignore", "pipe", "pipe"],
      });
      let output = "";
      for (const stream of [child.stdout, child.stderr])
        stream.on("data", (data: Buffer) => (output += data.toString()));
      if (isProcess) {
        child.once("exit", () => void (ended += `${script}: ${output}`));
        t.teardown(async () => {
          if (child.exitCode !== null || child.signalCode !== null) return;
          const exit = once(child, "exit");
          child.kill("SIGKILL");
          await exit;
        });
        return "";
      }
      if (ended !== "") throw new Error(ended);
      const [status] = (await once(child, "close")) as [number | null];
      if (status !== 0) throw new Error(`${script} ended with ${String(status)}: ${output}`);
      return output;
    };

    const all = steps("From nothing to a cluster");
    t.deepEqual([...new Set(all.map(({ machine }) => machine))].toSorted(), [1, 2, 3, 4, 5]);
    let nodes = "";
    let tasks = "";
    for (const step of all) {
      // A reader waits until a process serves before the next command.
      const printed = await until(step.line, () => run(step), stepMs);
      if (step.line === "muster node ls")
        nodes = await until("all nodes", async () => {
          const listed = await run(step);
          if (listed.match(/ Ready /g)?.length !== 5) throw new Error(listed);
          return listed;
        });
      if (step.line.startsWith("muster service ps")) tasks = printed;
    }
    t.is(nodes.match(/ (?:Leader|Reachable) /g)?.length, 3);
    t.is(nodes.match(/ Active /g)?.length, 2);
    t.regex(tasks, /hello\.1 .* Running +Running /);
  },
);
