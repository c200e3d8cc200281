/** The muster command. */
import { enableCompileCache } from "node:module";
import { isSea } from "node:sea";
import { hideSecretArguments } from "./own-arguments.ts";

hideSecretArguments();

// Cache compiled code: the generated protobuf code is large, and compiling it takes 0.2 s per start on a slow machine.
// bin/muster has already named a folder for the cache, so that this file is cached too. A single-file command has its own.
const { XDG_CACHE_HOME = "", HOME = "" } = process.env;
const caches = XDG_CACHE_HOME === "" && HOME !== "" ? `${HOME}/.cache` : XDG_CACHE_HOME;
if (caches !== "" && !isSea()) enableCompileCache(`${caches}/muster`);

// A closed pipe (`muster events | head`) is not a failure.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit(0);
  throw error;
});

async function main(): Promise<void> {
  const [{ run }, { processShell }] = await Promise.all([import("./run.ts"), import("./shell.ts")]);
  process.exitCode = await run(process.argv.slice(2), processShell());
}

void main();
