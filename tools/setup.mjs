// All set-up before `npm start` and `npm test`, with any Node from version 20: installs the packages, checks the current Node
// (from the npm package `node`), generates the protobuf code, bundles the web interface, and gets a nats-server. Plain JavaScript, since the Node that
// starts it may not support TypeScript. Takes a few milliseconds when everything is there.
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { bringNatsServer } from "./setup-nats.mjs";

const top = dirname(dirname(fileURLToPath(import.meta.url)));
const modules = join(top, "node_modules");
const stamp = join(modules, ".muster-lock");
const node = join(modules, ".bin", "node");
const nodeMajorMin = 24;
/** As in README.md and package.json. */
const starterMajorMin = 20;

function say(text) {
  process.stderr.write(`setup: ${text}\n`);
}

/** Exits with an error message. */
function fail(text) {
  say(text);
  process.exit(1);
}

/** `node` and `npm` run with this one until the packages are there. */
function checkStarter() {
  if (Number(process.versions.node.split(".")[0]) < starterMajorMin)
    fail(
      `the Node on PATH is ${process.version}, but the set-up needs version ${starterMajorMin} or newer: install one, or put a newer one first on PATH`,
    );
}

function installPackages() {
  const wanted = createHash("sha256")
    .update(readFileSync(join(top, "package-lock.json")))
    .digest("hex");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) return;
  say("installing packages (npm ci)");
  const npm = spawnSync("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], {
    cwd: top,
    stdio: ["ignore", 2, 2],
  });
  if (npm.error !== undefined) fail(`cannot run npm (${npm.error.message}): install npm and try again`);
  if (npm.status !== 0) fail("npm ci failed: see its messages above");
  mkdirSync(modules, { recursive: true });
  writeFileSync(stamp, wanted);
}

function checkNode() {
  let version = "";
  try {
    version = execFileSync(node, ["--version"], { encoding: "utf8" }).trim();
  } catch {
    fail("the npm package `node` has no Node for this machine: run `npm rebuild node`, or install Node 24 by hand");
  }
  if (Number(version.slice(1).split(".")[0]) < nodeMajorMin)
    fail(`node_modules/.bin/node is ${version}, but version ${nodeMajorMin} or newer is required: run npm ci`);
}

function generate() {
  const run = spawnSync(node, [join(top, "proto", "generate.ts")], { cwd: top, stdio: ["ignore", 2, 2] });
  if (run.status !== 0) fail("cannot generate the protobuf code: see the messages above");
}

function bundleInterface() {
  const run = spawnSync(node, [join(top, "tools", "bundle-ui.ts")], { cwd: top, stdio: ["ignore", 2, 2] });
  if (run.status !== 0) fail("cannot bundle the web interface: see the messages above");
}

async function bringNats() {
  const pinned = JSON.parse(readFileSync(join(top, "runtime", "nats", "pinned-server.json"), "utf8"));
  const failure = await bringNatsServer(say, pinned);
  if (failure !== null) fail(failure);
}

checkStarter();
installPackages();
checkNode();
generate();
bundleInterface();
await bringNats();
