/**
 * The verbs that are processes of their own (`up`, `manager`, `agent`, `start`), in the same form as the others:
 * `up: verb("…", async () => (await import("./processes/….ts")).up)`, each a `Command` made with `command(…)`.
 */
import type { VerbEntry } from "./verbs.ts";

export const processVerbs: Readonly<Record<string, VerbEntry>> = {};
