/**
 * Notes whether a system has inspectors, which XState keeps to itself: without any, planned steps make no inspection events.
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
