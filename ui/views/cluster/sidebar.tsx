/** Services and networks. */
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { isLive, objects, offers, version } from "../../cluster-state.ts";
import { countsOf, modeOf, rolloutText, serviceName } from "../../model/cluster/services.ts";
import type { ClusterRoute } from "../../model/route.ts";
import { addressOf } from "../../state.ts";
import type { Network, Service, Task } from "../../../proto/gen/cluster.ts";
import { Gauge, linkTo } from "./parts.tsx";

const text = signal("");

function ServiceRow({
  service,
  tasks,
  isChosen,
}: {
  readonly service: Service;
  readonly tasks: readonly Task[];
  readonly isChosen: boolean;
}) {
  const { failed, running, wanted } = countsOf(service, tasks);
  const rollout = rolloutText(service);
  const mode = modeOf(service);
  const isWhole = running >= wanted;
  const what = mode.endsWith("job") ? "complete or running" : "running";
  return (
    <li>
      <a href={linkTo("service", service.id)} aria-current={isChosen ? "true" : undefined}>
        <span class="name">{serviceName(service)}</span>
        {rollout !== "" && <span class={`badge ${rollout.includes("paused") ? "warn" : "moving"}`}>{rollout}</span>}
        <span class={isWhole ? "count" : "count warn"} aria-label={`${running} of ${wanted} ${what}`}>
          {running}/{wanted}
        </span>
        <Gauge kind={isWhole ? "whole" : "partly"} part={running} whole={wanted} />
        <small class="sort">
          {mode === "replicated" ? "" : mode}
          {failed > 0 && (
            <span class="warn">
              {" "}
              {failed} failed {failed === 1 ? "attempt" : "attempts"}
            </span>
          )}
        </small>
      </a>
    </li>
  );
}

function networkNote({ driverState, ipam, spec }: Network): string {
  const driver = driverState?.name || spec?.driverConfig?.name || "";
  return [driver, ...(ipam?.configs ?? []).map(({ subnet }) => subnet)].filter(Boolean).join(" · ");
}

export function Sidebar({ route }: { readonly route: ClusterRoute }) {
  void version.value;
  const search = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const focusSearch = (event: KeyboardEvent): void => {
      const target = event.target instanceof Element ? event.target : null;
      if (event.key !== "/" || target?.closest("input, textarea, select, .terminal") != null) return;
      event.preventDefault();
      search.current?.focus();
    };
    window.addEventListener("keydown", focusSearch);
    return () => window.removeEventListener("keydown", focusSearch);
  }, []);
  const byService = new Map<string, Task[]>();
  for (const task of objects.value.tasks.values()) {
    const tasks = byService.get(task.serviceId) ?? [];
    tasks.push(task);
    byService.set(task.serviceId, tasks);
  }
  const wanted = text.value.toLowerCase();
  const services = [...objects.value.services.values()]
    .filter((service) => serviceName(service).toLowerCase().includes(wanted))
    .toSorted((a, b) => serviceName(a).localeCompare(serviceName(b)));
  const networks = [...objects.value.networks.values()].toSorted((a, b) =>
    (a.spec?.annotations?.name ?? "").localeCompare(b.spec?.annotations?.name ?? ""),
  );
  const chosen = "id" in route ? route.id : "";
  return (
    <section class="sidebar" aria-label="Services and networks">
      <div class="tools">
        <input
          ref={search}
          type="search"
          placeholder="Search ( / )"
          aria-label="Search services by name"
          value={text.value}
          onInput={({ currentTarget }) => (text.value = currentTarget.value)}
        />
        {offers("createService") && isLive.value && (
          <a class="button" href={addressOf({ view: "cluster", part: "new" })}>
            + New
          </a>
        )}
      </div>
      <div class="scroll">
        <h2>
          Services <small>{objects.value.services.size}</small>
        </h2>
        {services.length === 0 && (
          <p class="empty">{objects.value.services.size === 0 ? "No services yet." : "No service matches."}</p>
        )}
        <ul class="services">
          {services.map((service) => (
            <ServiceRow
              key={service.id}
              service={service}
              tasks={byService.get(service.id) ?? []}
              isChosen={service.id === chosen}
            />
          ))}
        </ul>
        <h2>
          Networks <small>{networks.length}</small>
          {offers("createNetwork") && isLive.value && (
            <a
              class="button"
              href={addressOf({ view: "cluster", part: "new-network" })}
              aria-label="New network"
              title="New network"
            >
              +
            </a>
          )}
        </h2>
        <ul class="networks">
          {networks.map((network) => (
            <li key={network.id}>
              <a href={linkTo("network", network.id)} aria-current={network.id === chosen ? "true" : undefined}>
                <span class="name">{network.spec?.annotations?.name ?? network.id}</span>
                <small>{networkNote(network)}</small>
              </a>
            </li>
          ))}
        </ul>
      </div>
    </section>
  );
}
