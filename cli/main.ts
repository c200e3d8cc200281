/** The muster command. */
import { enableCompileCache } from "node:module";

// The generated protobuf code is large: without the cache each start would compile it anew (0.2 s on a slow machine).
enableCompileCache();

// A reader that has seen enough (`muster events | head`) is no failure.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit(0);
  throw error;
});

const [{ run }, { processShell }] = await Promise.all([import("./run.ts"), import("./shell.ts")]);
process.exitCode = await run(process.argv.slice(2), processShell());
