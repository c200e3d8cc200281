// Errors about missing objects use the words of Docker's own command, run against a stock manager.
import anyTest from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { runMuster, startManager } from "../fixtures/muster.ts";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { words } from "../fixtures/swarm.ts";
import { patient } from "../support/slowness.ts";

const test = engineMissing() === null ? anyTest.serial : anyTest.serial.skip;

/** Commands that both have, about objects that neither has. */
const asked: readonly string[] = [
  ...["service", "node", "network", "secret", "config"].flatMap((noun) => [`${noun} inspect nope`, `${noun} rm nope`]),
  "service inspect nope nor",
  "service ps nope",
  "service logs nope",
  "service update nope",
  "service rollback nope",
  "service rm nope nor",
  "node update --role worker nope",
  "node ps nope",
  "node promote nope",
  "node demote nope",
];

/** Older engines have only volumes of their own, about which they say something else. */
const askedSince142: readonly string[] = ["volume inspect nope"];

interface Told {
  readonly status: number;
  readonly stdout: string;
  /** One sentence per line, without the program's name. */
  readonly said: string;
}

/**
 * Docker's network and secret commands print a second line, which only says that they failed. Its 26.1 wraps all errors of some commands
 * in one "Status: ERRORS, Code: STATUS".
 */
function toldBy(status: number | null, stdout: string, stderr: string): Told {
  const said = stderr
    .replace(/^Status: (.*), Code: \d+$/ms, "$1")
    .split("\n")
    .map((line) => line.replace(/^(?:muster|Error response from daemon|Error): /, ""))
    .filter((line) => line !== "" && !/^exit status \d+$/.test(line));
  return { status: status ?? -1, stdout: stdout.trim(), said: said.join("\n") };
}

test("missing objects are reported in the words of Docker's own command", async (t) => {
  t.timeout(patient(300_000));
  const [engine, manager] = await Promise.all([startEngine(t), startManager(t)]);
  await engine.docker("swarm", "init", "--advertise-addr", engine.host, "--listen-addr", `${engine.host}:2399`);
  const docker = (line: string): Promise<Told> =>
    new Promise((resolve) => {
      execFile("docker", ["-H", `unix://${join(engine.dir, "docker.sock")}`, ...words(line)], (error, stdout, stderr) =>
        resolve(toldBy(error === null ? 0 : Number(error.code), stdout, stderr)),
      );
    });
  const host = `unix://${join(manager.dataDir, "control.sock")}`;
  const [, minor = "0"] = (await engine.docker("version", "--format", "{{.Server.APIVersion}}")).split(".");
  for (const line of [...asked, ...(Number(minor) < 42 ? [] : askedSince142)]) {
    const { code, stderr, stdout } = await runMuster(["--host", host, ...words(line)]);
    t.deepEqual(toldBy(code, stdout, stderr), await docker(line), line);
  }
});
