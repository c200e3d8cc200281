/**
 * The executable of the mock driver. `--tcp` listens on a port in the host's range instead of a Unix socket; `--alone-ms=N`
 * sets the time after which it exits without a host.
 */
import { parseArgs } from "node:util";
import { serveDriver } from "../../edges/plugin/server/index.ts";
import { MockDriver } from "./driver.ts";

const { values } = parseArgs({ options: { tcp: { type: "boolean" }, "alone-ms": { type: "string" } }, strict: false });
const aloneMs = typeof values["alone-ms"] === "string" ? Number(values["alone-ms"]) : undefined;
void serveDriver(new MockDriver(), values.tcp === true ? "tcp" : "unix", aloneMs);
