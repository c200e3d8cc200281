/** Loads the view of the cluster, with its messages, when it is first shown. */
import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";
import type { ClusterRoute } from "../model/route.ts";
import { link } from "../state.ts";

const view = signal<FunctionComponent<{ readonly route: ClusterRoute }> | null>(null);
const failure = signal("");

function load(): void {
  failure.value = "";
  void import("./cluster/view.tsx").then(
    ({ ClusterView }) => (view.value = ClusterView),
    (error: unknown) => (failure.value = `Cannot load this view: ${String(error)}`),
  );
}

export function ClusterPart({ route }: { readonly route: ClusterRoute }) {
  const { state } = link.value;
  useEffect(() => {
    if (view.value === null && state === "live") load();
  }, [state]);
  const View = view.value;
  if (View !== null) return <View route={route} />;
  return (
    <main class="alone">
      <p class="empty">{failure.value || "Loading …"}</p>
      {failure.value !== "" && (
        <button type="button" onClick={load}>
          Try again
        </button>
      )}
    </main>
  );
}
