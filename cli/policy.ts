/** `muster policy`: apply, ls, inspect, rm, explain, status. */
import type { Command } from "./command.ts";
import { apply, rm } from "./policy/change.ts";
import { explain, inspect, ls } from "./policy/show.ts";
import { status } from "./policy/status.ts";

export const commands: Readonly<Record<string, Command>> = { apply, ls, inspect, rm, explain, status };
