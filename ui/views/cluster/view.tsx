/** The view of the cluster: services, nodes × tasks and events, and beside them what was chosen. */
import { useEffect } from "preact/hooks";
import { startCluster, sync, version } from "../../cluster-state.ts";
import type { ClusterRoute } from "../../model/route.ts";
import { EventsPanel } from "./events.tsx";
import { Matrix } from "./matrix.tsx";
import { NetworkDetail } from "./network.tsx";
import { NewNetwork } from "./network-form.tsx";
import { NodeDetail } from "./node.tsx";
import { NewService } from "./service-form.tsx";
import { overview } from "./parts.tsx";
import { ServiceDetail } from "./service.tsx";
import { Sidebar } from "./sidebar.tsx";
import { TaskDetail } from "./task.tsx";

function Detail({ route }: { readonly route: ClusterRoute }) {
  switch (route.part) {
    case "overview":
      return null;
    case "new":
      return <NewService />;
    case "new-network":
      return <NewNetwork />;
    // Keys: what is typed for one object never stays for another.
    case "service":
      return <ServiceDetail key={route.id} id={route.id} />;
    case "task":
      return <TaskDetail key={route.id} id={route.id} />;
    case "node":
      return <NodeDetail key={route.id} id={route.id} />;
    case "network":
      return <NetworkDetail key={route.id} id={route.id} />;
  }
}

export function ClusterView({ route }: { readonly route: ClusterRoute }) {
  useEffect(startCluster, []);
  void version.value;
  const { state, text } = sync.value;
  const isOverview = route.part === "overview";
  useEffect(() => {
    if (isOverview) return;
    const onKeyDown = (event: KeyboardEvent): void => {
      // A terminal and a field need the key themselves.
      const target = event.target instanceof Element ? event.target : null;
      if (event.key !== "Escape" || target?.closest(".terminal, input, textarea, select") != null) return;
      window.location.hash = overview();
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, [isOverview]);
  return (
    <main class={`cluster${isOverview ? "" : " chosen"}`}>
      <Sidebar route={route} />
      <section class="middle" aria-label="Nodes, tasks and events">
        {text !== "" && (
          <p class="notice warn" role="alert">
            {text}
          </p>
        )}
        {state === "loading" ? <p class="empty">{text === "" && "Reading the cluster …"}</p> : <Matrix route={route} />}
        <EventsPanel />
      </section>
      {!isOverview && (
        <aside class="detail" aria-label="Details">
          <a class="close" href={overview()} aria-label="Close the details">
            ✕
          </a>
          {state !== "loading" && <Detail route={route} />}
        </aside>
      )}
    </main>
  );
}
