/** `npm run reference`: writes docs/cli.md. */
import { writeFileSync } from "node:fs";
import { reference } from "../cli/help/reference.ts";

writeFileSync(new URL("../docs/cli.md", import.meta.url), await reference());
