// The npm package, installed from a registry on loopback: it runs a cluster, and other programs import its parts.
import { execFile, execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { createService, runningTasks, sleepers } from "../fixtures/control-client.ts";
import { startAgent, startManager, tempDir } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { npmRegistry } from "../fixtures/npm-registry.ts";
import { until } from "../fixtures/until.ts";

const top = fileURLToPath(new URL("../../", import.meta.url));
const run = promisify(execFile);

const program = `
import { ControlService, ListNodesRequest, connectUnix } from "muster/control";
import { allCharts } from "muster/charts";
import { readFileSync } from "node:fs";
import { connectJson, type JsonChange } from "muster/json";
import { number, serveDriver, text, type Driver } from "muster/driver";

const [socket = "", url = "", caFile = "", passwordFile = ""] = process.argv.slice(2);
const manager = await connectUnix(socket);
const { nodes } = await manager.unary(ControlService.methods.ListNodes, ListNodesRequest.create({}), { timeoutMs: 20_000 });
manager.close();
const names: readonly string[] = (await allCharts()).map(({ machine }) => machine.id);
const api = await connectJson(url, { ca: readFileSync(caFile) });
await api.login("ada", readFileSync(passwordFile, "utf8").trim());
const changes: JsonChange[] = [];
for await (const change of api.watchAll()) {
  changes.push(change);
  if (change.kind === "model") break;
}
api.close();
console.log(JSON.stringify({ nodes: nodes.length, charts: names.length, kit: [typeof serveDriver, typeof text, typeof number], model: changes.at(-1)?.entity["name"] }));
export type Mine = Driver<{ readonly image: ReturnType<typeof text> }>;
`;

test.serial("the npm package brings a command and a library with types", async (t) => {
  const [out, prefix, project] = [tempDir(t, "package"), tempDir(t, "prefix"), tempDir(t, "project")];
  execFileSync(process.execPath, [join(top, "tools/package/main.ts"), "npm", "--out", out], { stdio: "pipe" });
  const { version } = JSON.parse(readFileSync(join(top, "package.json"), "utf8")) as {
    readonly version: string;
  };
  const registry = await npmRegistry(t);
  // The scripts of the package "node" fetch what the registry's tarball of it already contains.
  const flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--registry", registry, "--cache", join(out, "cache")];
  const file = join(out, `muster-${version}.tgz`);
  await run("npm", ["install", "--global", "--prefix", prefix, ...flags, file]);
  const installed = join(prefix, "lib/node_modules/muster");
  const command = join(prefix, "bin/muster");
  t.true(execFileSync(command, ["version"], { encoding: "utf8" }).startsWith(`muster ${version} (`));
  t.is(
    execFileSync(command, ["charts", "--quiet"], { encoding: "utf8" }),
    execFileSync(process.execPath, [join(top, "cli/main.ts"), "charts", "--quiet"], { encoding: "utf8" }),
  );
  t.regex(execFileSync(command, ["simulate", "--list"], { encoding: "utf8" }), /rolling-update-rack-loss/);

  const port = await freePort();
  const main = join(installed, "cli/main.js");
  const manager = await startManager(t, {
    program: main,
    args: ["--json-listen", `127.0.0.1:${port}`],
  });
  await startAgent(t, manager, { program: main });
  await createService(manager, sleepers("web", 1));
  await until("a running task", async () => (await runningTasks(manager)).length === 1);
  const [ca, secret] = [join(out, "ca.pem"), join(out, "password")];
  writeFileSync(secret, "correct horse\n");
  await manager.muster("user", "add", "--role", "read-only", "--password-file", secret, "ada");
  writeFileSync(ca, `${await manager.muster("ca")}\n`);
  const socket = join(manager.dataDir, "control.sock");
  t.regex(execFileSync(command, ["--host", socket, "node", "ls"], { encoding: "utf8" }), /Leader/);

  mkdirSync(join(project, "node_modules/@types"), { recursive: true });
  symlinkSync(installed, join(project, "node_modules/muster"));
  symlinkSync(join(top, "node_modules/@types/node"), join(project, "node_modules/@types/node"));
  writeFileSync(join(project, "package.json"), '{ "type": "module" }');
  writeFileSync(join(project, "program.ts"), program);
  const options = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2024", "--types", "node"];
  const tsc = join(top, "node_modules/.bin/tsc");
  const checked = await run(tsc, [...options, "--skipLibCheck", "program.ts"], { cwd: project }).catch(
    (error: { readonly stdout: string }) => error,
  );
  t.is(checked.stdout, "");
  const args = [join(project, "program.ts"), socket, `wss://localhost:${port}/`, ca, secret];
  const { stdout } = await run(process.execPath, args, { cwd: project });
  const { charts, kit, model, nodes } = JSON.parse(stdout) as {
    readonly charts: number;
    readonly kit: readonly string[];
    readonly model: string;
    readonly nodes: number;
  };
  t.is(model, "default");
  t.is(nodes, 2);
  t.is(charts, execFileSync(command, ["charts", "--quiet"], { encoding: "utf8" }).trim().split("\n").length);
  t.deepEqual(kit, ["function", "function", "function"]);
});
