/** Checks `depends_on`: it refers to services of the project, without cycles. */
import { child, mistake, textOf, under, type Node } from "./located.ts";

/** Throws UserError, with file, line and key. `services`: all of the project, including inactive profiles. */
export function checkDependencies(services: Node | undefined): void {
  if (services?.kind !== "mapping") return;
  const done = new Set<string>();
  const visit = (name: string, way: readonly string[]): void => {
    if (done.has(name)) return;
    const needs = child(child(services, name), "depends_on");
    const path = under(under("services", name), "depends_on");
    for (const [other, { at, value }] of needs?.kind === "mapping" ? needs.entries : []) {
      if (!services.entries.has(other)) {
        const required = child(value, "required");
        if (required !== undefined && /^false$/i.test(textOf(required))) continue;
        throw mistake(at, path, `refers to the service '${other}', which the project does not define`);
      }
      const circle = [...way, name].indexOf(other);
      if (circle >= 0)
        throw mistake(at, path, `is a dependency cycle: ${[...way, name, other].slice(circle).join(" -> ")}`);
      visit(other, [...way, name]);
    }
    done.add(name);
  };
  for (const name of services.entries.keys()) visit(name, []);
}
