/**
 * `npm run peers`: builds the foreign Go peers that are not in the cache yet; `npm run peers -- NAME…`: the named ones, also
 * large ones. Prints the path of each.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import { say } from "../../ava.ts";
import { moduleFolder, peerPath, peers, type Peer, type PeerName } from "./peers.ts";

/** A whole Nomad agent takes some ten minutes on two quiet cores, a small one under two: this ends a build that hangs. */
const buildMsMax = 3_600_000;

const isPeer = (name: string): name is PeerName => Object.hasOwn(peers, name);
const all = Object.keys(peers).filter(isPeer);

function build(name: PeerName): boolean {
  const { module, package: target, isTest }: Peer = peers[name];
  const path = peerPath(name);
  if (existsSync(path)) return true;
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  // Whole or not at all, even if two processes build it at the same time.
  const fresh = `${path}.${process.pid}`;
  const verb = isTest === true ? ["test", "-c"] : ["build"];
  const started = performance.now();
  const run = spawnSync("go", [...verb, "-mod=readonly", "-buildvcs=false", "-trimpath", "-o", fresh, target], {
    cwd: moduleFolder(module),
    stdio: ["ignore", 2, 2],
    timeout: buildMsMax,
    env: { ...process.env, GOFLAGS: "" },
  });
  if (run.status !== 0) {
    rmSync(fresh, { force: true });
    const why = run.error === undefined ? "see the messages above" : run.error.message;
    say(`peers: cannot build ${name}: ${why}`);
    return false;
  }
  renameSync(fresh, path);
  say(`peers: built ${name} in ${((performance.now() - started) / 1000).toFixed(1)} s`);
  return true;
}

const named = process.argv.slice(2);
const unknown = named.filter((name) => !isPeer(name));
if (unknown.length > 0) {
  say(`peers: unknown peer ${unknown.join(", ")}; expected one of ${all.join(", ")}`);
  process.exit(2);
}
const wanted = named.length > 0 ? named.filter(isPeer) : all.filter((name) => !("isLarge" in peers[name]));
let failed = 0;
for (const name of wanted) {
  if (build(name)) say(peerPath(name));
  else failed += 1;
}
process.exit(failed === 0 ? 0 : 1);
