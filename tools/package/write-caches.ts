/**
 * Writes V8's code caches of the scripts in a folder, after a command that reads: `write-caches.ts CODE CACHE`. Runs with the
 * Node and the flags of the executable that the caches are for.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
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
  process.exitCode = 0;
  for (const name of filesBelow(code)) {
    // A script that the command has not loaded is compiled without its inner functions.
    const script = scripts.get(name) ?? scriptOf(name, readFileSync(join(code, name), "latin1"), undefined);
    mkdirSync(dirname(join(cache, name)), { recursive: true });
    writeFileSync(join(cache, name), script.createCachedData());
  }
});

process.argv.push("--host", join(code, "no.sock"), "node", "ls");
load("cli/main.js");
