/** The order in which a stack's services are made. */
import type { View } from "./view.ts";

/** The services, each behind those that it depends on; else in order of name. Circles end where they began. */
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
