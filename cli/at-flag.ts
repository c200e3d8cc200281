/** `--at`: which commands take it, and what it says in their help. What it does: `past.ts`. */

/** Last words of commands that only read. */
const readingWords = new Set(["ls", "list", "inspect", "ps", "services", "rollout", "why"]);

/** Others that do, by their whole names. */
const readingNames = new Set(["job history"]);

/** Whether a command of that name, such as `service ls`, takes `--at`. */
export function readsThePast(name: string): boolean {
  return readingNames.has(name) || readingWords.has(name.slice(name.lastIndexOf(" ") + 1));
}

export const atFlag = {
  type: "string",
  value: "VERSION|TIME",
  help: "Show the state at this version, at this time, or this long ago (10m)",
} as const;
