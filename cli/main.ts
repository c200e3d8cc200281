/** The muster command. */
import { enableCompileCache } from "node:module";
import { hideSecretArguments } from "./own-arguments.ts";

hideSecretArguments();

// The generated protobuf code is large: without the cache each start would compile it anew (0.2 s on a slow machine).
// bin/muster has named a folder for it before, which spares the compiler for this file as well.
const { XDG_CACHE_HOME = "", HOME = "" } = process.env;
const caches = XDG_CACHE_HOME === "" && HOME !== "" ? `${HOME}/.cache` : XDG_CACHE_HOME;
if (caches !== "") enableCompileCache(`${caches}/muster`);

// A reader that has seen enough (`muster events | head`) is no failure.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit(0);
  throw error;
});

const [{ run }, { processShell }] = await Promise.all([import("./run.ts"), import("./shell.ts")]);
process.exitCode = await run(process.argv.slice(2), processShell());
