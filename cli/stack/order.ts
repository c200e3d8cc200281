/** The order in which a stack's services are deployed. */
import type { View } from "./view.ts";

/** Services in dependency order, then by name. Cycles are cut where they close. */
export function inOrderOfDependence(services: ReadonlyMap<string, View>): readonly string[] {
  const order: string[] = [];
  const seen = new Set<string>();
  const visit = (name: string): void => {
    const service = services.get(name);
    if (service === undefined || seen.has(name)) return;
    seen.add(name);
    for (const other of service.child("depends_on").keys.toSorted()) visit(other);
    order.push(name);
  };
  for (const name of [...services.keys()].toSorted()) visit(name);
  return order;
}

/** Maximum number of concurrent writes, which share the manager's appends to the log; more would only queue there. */
const atOnceMax = 16;

/**
 * Runs the action for each service in that order, concurrently, but only after those of its dependencies. After a failure
 * nothing more starts, and running actions finish before this rejects.
 */
export async function inTurn<Result>(
  services: ReadonlyMap<string, View>,
  act: (name: string, at: number) => Promise<Result>,
): Promise<readonly Result[]> {
  const done = new Map<string, Promise<Result>>();
  const underWay = new Set<Promise<void>>();
  let hasFailed = false;
  for (const [at, name] of inOrderOfDependence(services).entries()) {
    const needed = services.get(name)?.child("depends_on").keys ?? [];
    // In a cycle, the last service does not wait for the first.
    await Promise.allSettled(needed.map((other) => done.get(other) ?? Promise.resolve()));
    if (underWay.size >= atOnceMax) await Promise.race(underWay);
    if (hasFailed) break;
    const acting = act(name, at);
    const settled: Promise<void> = acting.then(
      () => void underWay.delete(settled),
      () => {
        hasFailed = true;
        underWay.delete(settled);
      },
    );
    underWay.add(settled);
    done.set(name, acting);
  }
  await Promise.allSettled(done.values());
  return Promise.all(done.values());
}
