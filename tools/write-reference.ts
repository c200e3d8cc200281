/** `npm run reference`: writes docs/cli.md, and the tables in docs/observability.md and docs/configuration.md. */
import { readFileSync, writeFileSync } from "node:fs";
import { reference } from "../cli/help/reference.ts";
import { withSettingsTable } from "./settings-table.ts";
import { withSpanTables } from "./span-table.ts";

writeFileSync(new URL("../docs/cli.md", import.meta.url), await reference());
const observability = new URL("../docs/observability.md", import.meta.url);
writeFileSync(observability, withSpanTables(readFileSync(observability, "utf8")));
const configuration = new URL("../docs/configuration.md", import.meta.url);
writeFileSync(configuration, await withSettingsTable(readFileSync(configuration, "utf8")));
