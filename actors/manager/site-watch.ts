/** Reports sites that are cut off as one trouble, by this manager's replica (`machines/manager/sites.ts`). */
import { Sites } from "../../machines/manager/sites.ts";
import { Trouble_Kind } from "../../proto/gen/messages.ts";
import type { Troubles } from "../../runtime/ports/troubles.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { Running } from "../environment.ts";

export function startSiteWatch(store: Pick<Store, "all" | "watch">, troubles: Troubles): Running {
  const sites = new Sites();
  const look = (): void => {
    const sentence = sites.sentence();
    if (sentence === null) troubles.clear(Trouble_Kind.SITE_CUT_OFF);
    else troubles.raise({ kind: Trouble_Kind.SITE_CUT_OFF, sentence, blocking: false });
  };
  for (const node of store.all("node")) sites.move(null, node);
  look();
  const watching = store.watch(({ changes }) => {
    let isTouched = false;
    for (const { action, object, old, table } of changes) {
      if (table !== "node") continue;
      sites.move(old, action === "remove" ? null : object);
      isTouched = true;
    }
    if (isTouched) look();
  });
  return { stop: () => watching.unsubscribe() };
}
