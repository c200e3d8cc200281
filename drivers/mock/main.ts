/** The executable of the mock driver. With `--tcp` it listens on a port of the host's range rather than on a Unix socket. */
import { serveDriver } from "../../edges/plugin/server/index.ts";
import { MockDriver } from "./driver.ts";

await serveDriver(new MockDriver(), process.argv.includes("--tcp") ? "tcp" : "unix");
