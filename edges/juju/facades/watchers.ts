/**
 * Watcher types: Next and Stop on their ids (reference §6). An id is valid on its own connection only, so whoever may create a
 * watcher may use it.
 */
import type { JsonWatcher, News } from "../../../runtime/ports/json-watch.ts";
import type { Call, Facade, FacadeSources } from "../facade.ts";
import type { Resource } from "../resources.ts";
import type { Json } from "../results.ts";

interface Standing extends Resource {
  readonly watcher: JsonWatcher<Json>;
}

/** Starts a watcher and returns its id. */
export function addWatcher(
  { watchers }: Pick<FacadeSources, "watchers">,
  call: Call,
  type: string,
  news: News<Json>,
): string {
  const watcher = watchers.start(news);
  const standing: Standing = { watcher, stop: () => watcher.close() };
  return call.session.resources.add(type, standing);
}

function facade(type: string, fields: Pick<Facade, "versions" | "who"> & Partial<Facade>): Facade {
  const watcherOf = ({ session, id }: Call): JsonWatcher<Json> => (session.resources.get(type, id) as Standing).watcher;
  return {
    type,
    id: "watcher",
    methods: {
      Next: { needs: "read-only", run: (call) => watcherOf(call).next() },
      Stop: {
        needs: "read-only",
        run(call) {
          // Stopped first, so that waiting requests learn that the watcher was stopped, not that the connection ended.
          watcherOf(call).stop();
          call.session.resources.stop(type, call.id);
          return {};
        },
      },
    },
    ...fields,
  };
}

const seed = { versions: [0], shape: "V0", isUnlisted: true, who: "everybody" } as const;

export const watcherFacades: readonly Facade[] = [
  facade("AllWatcher", { versions: [0, 1, 2, 3, 4], who: "users", scope: "model" }),
  facade("ClientWatcher", { ...seed, who: "users" }),
  facade("LogsWatcher", { versions: [0, 1], who: "users", scope: "model" }),
  facade("NotifyWatcher", { versions: [0, 1], who: "everybody" }),
  facade("StringsWatcher", { versions: [0, 1], who: "everybody" }),
  ...[
    "EntityWatcher",
    "MachineWatcher",
    "UnitWatcher",
    "LifecycleWatcher",
    "EnvironConfigWatcher",
    "MachineUnitsWatcher",
    "ServiceUnitsWatcher",
    "UnitsWatcher",
    "ServiceRelationsWatcher",
    "RelationScopeWatcher",
    "ConfigWatcher",
  ].map((type) => facade(type, seed)),
];
