/** The leader's part of logins: removes agents' passwords with their node or task. */
import { commit, removal } from "../control/write.ts";
import type { Environment, Running } from "../environment.ts";
import { recordId, isLeftOver } from "./user-records.ts";

/** Removals per transaction. */
const batchMax = 100;
/** Delay before retrying a failed removal, in milliseconds. */
const retryMs = 5_000;

export function startAgentLogins(env: Environment): Running {
  const { clock, store } = env;
  const leftOver = new Set<string>();
  let isBusy = false;
  let stopped = false;

  function look(id: string): void {
    const record = store.get("user", id);
    if (record !== undefined && isLeftOver(store, record)) leftOver.add(id);
  }

  async function removeThem(): Promise<void> {
    if (isBusy || stopped || leftOver.size === 0) return;
    isBusy = true;
    const ids = [...leftOver].slice(0, batchMax);
    for (const id of ids) leftOver.delete(id);
    const present = ids.filter((id) => store.get("user", id) !== undefined);
    try {
      await commit(env, { traceparent: "" }, ...present.map((id) => removal("user", id)));
    } catch {
      // One of them may have been removed concurrently.
      for (const id of ids) look(id);
      await new Promise<void>((resolve) => void clock.setTimeout(resolve, retryMs));
    }
    isBusy = false;
    await removeThem();
  }

  for (const { id } of store.all("user")) look(id);
  const watching = store.watch(({ changes }) => {
    for (const { action, table, object } of changes) {
      if (table === "user") look(object.id);
      else if (action !== "remove") continue;
      else if (table === "node") look(recordId({ kind: "machine", nodeId: object.id }));
      else if (table === "task") look(recordId({ kind: "unit", taskId: object.id }));
    }
    void removeThem();
  });
  void removeThem();
  return {
    stop() {
      stopped = true;
      watching.unsubscribe();
    },
  };
}
