/**
 * Whether anybody inspects the actors of a system, which XState does not tell: planned steps make no inspection events otherwise.
 */
import type { AnyActorRef, Subscription } from "xstate";

interface Noting {
  /** Absent in systems that are not a host's: they may have inspectors. */
  isInspected?: boolean;
}

/** Notes the inspectors of a system from now on. Call it before there is one. */
export function noteInspectors(system: AnyActorRef["system"]): void {
  const noting: Noting = system as Noting;
  const inspect = system.inspect.bind(system);
  const inspectors = new Set<Subscription>();
  noting.isInspected = false;
  system.inspect = (inspector) => {
    const subscription = inspect(inspector);
    inspectors.add(subscription);
    noting.isInspected = true;
    return {
      unsubscribe: () => {
        subscription.unsubscribe();
        inspectors.delete(subscription);
        noting.isInspected = inspectors.size > 0;
      },
    };
  };
}
