/**
 * The watchers, as what is asked for on their ids: Next and Stop (reference §6). Those who may make one may use it: its id
 * means something on its own connection alone.
 */
import type { JsonWatcher, News } from "../../../runtime/json-watch.ts";
import type { Call, Facade, FacadeSources } from "../facade.ts";
import type { Resource } from "../resources.ts";
import type { Json } from "../results.ts";

interface Standing extends Resource {
  readonly watcher: JsonWatcher<Json>;
}

/** Begins to watch, and answers the watcher's id. */
export function standWatcher(
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
          // Before it is forgotten: what waits is told that it was stopped, not that the connection ends.
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
