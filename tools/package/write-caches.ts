/**
 * Writes V8's code caches of the scripts in a folder, after a command that reads: `write-caches.ts CODE CACHE`. Runs with the
 * Node and the flags of the executable that the caches are for, and with those for equal bytes.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import v8 from "node:v8";
import type { Script } from "node:vm";
import { moduleLoader, scriptOf } from "./loader.ts";
import { filesBelow } from "./contents.ts";

const [code = "", cache = ""] = process.argv.splice(2);
const scripts = new Map<string, Script>();
const load = moduleLoader({
  read: (name) => ({ source: readFileSync(join(code, name), "latin1"), cache: undefined }),
  loaded: (name, script) => void scripts.set(name, script),
});

process.on("exit", () => {
  // Otherwise V8 would accept the caches with this flag only.
  v8.setFlagsFromString("--initial-heap-size=0");
  process.exitCode = 0;
  for (const found of filesBelow(code)) {
    // A name as part of a path would bring the whole path, and so this folder, into the cache.
    const name = Buffer.from(found).toString();
    // A script that the command has not loaded is compiled without its inner functions.
    const script = scripts.get(name) ?? scriptOf(name, readFileSync(join(code, name), "latin1"), undefined);
    mkdirSync(dirname(join(cache, name)), { recursive: true });
    writeFileSync(join(cache, name), script.createCachedData());
  }
});

process.argv.push("--host", join(code, "no.sock"), "node", "ls");
load("cli/main.js");
