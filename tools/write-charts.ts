/** `npm run charts`: writes every statechart as Mermaid into docs/machines/, one page each. */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chartPages } from "./chart-pages.ts";

const folder = fileURLToPath(new URL("../docs/machines/", import.meta.url));
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
for (const [file, text] of await chartPages()) writeFileSync(folder + file, text);
