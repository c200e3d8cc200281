/**
 * Drops a false warning of XState's development build, which forbids calls such as `assign()` within an effect: an effect that starts
 * an actor makes XState itself call them. A call of ours is still reported. Every test process loads this file (package.json, "ava").
 */
const { warn } = globalThis.console;

globalThis.console.warn = (...given: unknown[]): void => {
  if (String(given[0]).startsWith("Custom actions should not call") && isOwnCall(new Error().stack ?? "")) return;
  warn(...given);
};

/** Whether XState called the function that warns. The stack: an error's line, this file, that function, its caller. */
function isOwnCall(stack: string): boolean {
  return stack.split("\n")[3]?.includes("/node_modules/xstate/") ?? false;
}
