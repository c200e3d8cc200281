/**
 * A manager's own demotion, as its process sees it: once its node is to be a worker, it hands over and exits. `demotions.ts` is
 * the leader's side.
 */
import { isDemoted } from "../../machines/manager/role.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { Running } from "../environment.ts";

interface OwnDemotion extends Running {
  /** According to the replica; correct once it has caught up. */
  isDemoted(): boolean;
  /** Resolves once this process's node is to be a worker; never rejects. */
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
