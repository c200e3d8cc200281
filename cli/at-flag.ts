/** `--at`: which commands accept it, and its help text. Implemented in `past.ts`. */

/** Last words of commands that only read. */
const readingWords = new Set(["ls", "list", "inspect", "ps", "services", "rollout", "why"]);

/** Full names of other commands that only read. */
const readingNames = new Set(["job history"]);

/** Commands that know only the present: the past of actors is in their recordings. */
const presentOnly = new Set(["inspect"]);

/** Whether the command `name`, such as `service ls`, accepts `--at`. */
export function readsThePast(name: string): boolean {
  if (presentOnly.has(name)) return false;
  return readingNames.has(name) || readingWords.has(name.slice(name.lastIndexOf(" ") + 1));
}

export const atFlag = {
  type: "string",
  value: "VERSION|TIME",
  help: "Show the state at this version, at this time, or this long ago (10m)",
} as const;
