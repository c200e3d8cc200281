/** The executable of the docker driver. */
import { enableCompileCache } from "node:module";

// As in the exec driver's.
enableCompileCache();

const [{ serveDriver }, { DockerPlugin }] = await Promise.all([
  import("../../edges/plugin/server/index.ts"),
  import("./plugin.ts"),
]);
await serveDriver(new DockerPlugin());
