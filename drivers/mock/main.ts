/**
 * The executable of the mock driver. With `--tcp` it listens on a port of the host's range rather than on a Unix socket;
 * `--alone-ms=N` is how long it stays without a host.
 */
import { parseArgs } from "node:util";
import { serveDriver } from "../../edges/plugin/server/index.ts";
import { MockDriver } from "./driver.ts";

const { values } = parseArgs({ options: { tcp: { type: "boolean" }, "alone-ms": { type: "string" } }, strict: false });
const aloneMs = typeof values["alone-ms"] === "string" ? Number(values["alone-ms"]) : undefined;
await serveDriver(new MockDriver(), values.tcp === true ? "tcp" : "unix", aloneMs);
