/** The executable of the docker driver. */
import { serveDriver } from "../../edges/plugin/server/index.ts";
import { DockerPlugin } from "./plugin.ts";

void serveDriver(new DockerPlugin());
