/** The executable of the exec driver. */
import { serveDriver } from "../../edges/plugin/server/index.ts";
import { ExecPlugin } from "./plugin.ts";

await serveDriver(new ExecPlugin());
