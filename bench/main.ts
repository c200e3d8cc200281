/** `npm run bench [-- --short]`: prints every table; `--short` uses small loads, to show that each benchmark works. */
import { cpus } from "node:os";
import { loadTables, type Load } from "./load.ts";

const isShort = process.argv.includes("--short");

const loads: readonly Load[] = isShort
  ? [{ agents: 20, tasks: 200, batch: false, idleSeconds: 0 }]
  : [
      { agents: 100, tasks: 2_000, batch: false, idleSeconds: 0 },
      { agents: 200, tasks: 20_000, batch: false, idleSeconds: 0 },
      { agents: 200, tasks: 20_000, batch: true, idleSeconds: 0 },
      { agents: 1_000, tasks: 10_000, batch: false, idleSeconds: 20 },
    ];

process.stdout.write(`${new Date().toISOString()}, ${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}\n`);
process.stdout.write(await loadTables(loads));
