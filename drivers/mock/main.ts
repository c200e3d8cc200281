/** The executable of the mock driver. */
import { serveDriver } from "../../edges/plugin/server/index.ts";
import { MockDriver } from "./driver.ts";

await serveDriver(new MockDriver());
