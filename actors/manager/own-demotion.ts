/**
 * A manager's own demotion, as its process sees it: once somebody wants its node as a worker it is to hand over and end.
 * The leader's side of it is `demotions.ts`.
 */
import { isDemoted } from "../../machines/manager/manager-role.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { Running } from "../environment.ts";

export interface OwnDemotion extends Running {
  /** As the replica has it; right once that has caught up. */
  isDemoted(): boolean;
  /** Resolves once somebody wants this process's node as a worker, and never rejects. */
  readonly demoted: Promise<void>;
}

export function watchOwnDemotion(store: Store, managerId: string): OwnDemotion {
  const { promise, resolve } = Promise.withResolvers<void>();
  const isDemotedNow = (): boolean => {
    const node = store.get("node", managerId);
    return node !== undefined && isDemoted(node);
  };
  const watching = store.watch(() => {
    if (isDemotedNow()) resolve();
  });
  return { isDemoted: isDemotedNow, demoted: promise, stop: () => watching.unsubscribe() };
}
