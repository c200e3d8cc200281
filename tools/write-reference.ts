/** `npm run reference`: writes docs/cli.md, and the tables of spans in docs/observability.md. */
import { readFileSync, writeFileSync } from "node:fs";
import { reference } from "../cli/help/reference.ts";
import { withSpanTables } from "./span-table.ts";

writeFileSync(new URL("../docs/cli.md", import.meta.url), await reference());
const observability = new URL("../docs/observability.md", import.meta.url);
writeFileSync(observability, withSpanTables(readFileSync(observability, "utf8")));
