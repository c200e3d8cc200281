/** The executable of the exec driver. */
import { serveDriver } from "../../edges/plugin/server/index.ts";
import { execFor } from "./foreign.ts";

void serveDriver(execFor(process.argv.slice(2), process.env));
