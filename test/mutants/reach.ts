/** The files that a simulation runs: direct and indirect imports of its program. */
import { readFileSync } from "node:fs";
import { dirname, relative, resolve } from "node:path";

export function reachedFrom(top: string, program: string): ReadonlySet<string> {
  const reached = new Set<string>();
  const left = [resolve(top, program)];
  for (let path = left.pop(); path !== undefined; path = left.pop()) {
    const name = relative(top, path);
    if (reached.has(name)) continue;
    reached.add(name);
    const text = readFileSync(path, "utf8");
    // Type imports leave no code.
    for (const [, target] of text.matchAll(/^(?:import|export)\s+(?!type\b)[^;]*?from\s+"(\.[^"]+\.ts)"/gm))
      left.push(resolve(dirname(path), target as string));
  }
  return reached;
}
