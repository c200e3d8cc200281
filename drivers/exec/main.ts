/** The executable of the exec driver. */
import { enableCompileCache } from "node:module";

// Every agent starts one: compiled anew each time it would need four times the processor's time.
enableCompileCache();

const [{ serveDriver }, { ExecPlugin }] = await Promise.all([
  import("../../edges/plugin/server/index.ts"),
  import("./plugin.ts"),
]);
await serveDriver(new ExecPlugin());
