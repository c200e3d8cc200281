/** Relation and RelationUnit: services that share a network, as entities by key, and their units in it. */
import type { Facade } from "../facade.ts";
import { topics } from "../feed/feed.ts";
import { verbatim } from "../results.ts";
import { seed, addSetWatcher, watching } from "./by-id.ts";
import { refusing, type ClientParts } from "./parts.ts";
import { notFound } from "./subjects.ts";

export function relationFacades({ sources, subjects }: ClientParts): readonly Facade[] {
  const relationOf = (key: string) => {
    const view = sources.feed.find("relation", key);
    if (view === undefined) throw notFound("relation", JSON.stringify(key));
    return view;
  };
  /** `backend:network#web/0` */
  const scopeOf = (id: string) => {
    const at = id.indexOf("#");
    const relation = relationOf(at < 0 ? id : id.slice(0, at));
    const unit = subjects.unit(at < 0 ? "" : id.slice(at + 1));
    if (!relation.applications.includes(unit.application)) throw notFound("relation unit", JSON.stringify(id));
    return { relation, unit };
  };
  const relation: Facade = {
    ...seed,
    type: "Relation",
    who: "everybody",
    id: "entity",
    lookUp: ({ id }) => void relationOf(id),
    methods: {
      Get: {
        needs: "read-only",
        run({ id }) {
          const { number, driver, applications } = relationOf(id);
          const endpoints = applications.map((application) => ({
            ServiceName: application,
            Relation: { Name: "network", Role: "peer", Interface: driver, Scope: "global" },
          }));
          return verbatim({ Key: id, Id: number, Life: "alive", Endpoints: endpoints });
        },
      },
      Life: { needs: "read-only", run: () => ({ life: "alive" }) },
      Watch: watching(sources, "relation"),
    },
  };
  const relationUnit: Facade = {
    ...seed,
    type: "RelationUnit",
    who: "agents",
    id: "entity",
    lookUp: ({ id }) => void scopeOf(id),
    methods: {
      Get: {
        needs: "read-only",
        run({ id }) {
          const { relation: view, unit } = scopeOf(id);
          return verbatim({ Key: view.id, Unit: unit.id, Settings: { "private-address": unit.privateAddress } });
        },
      },
      /** The other units in the relation: every live unit of every application on the network except its own. */
      WatchScope: {
        needs: "read-only",
        run(call) {
          const { relation: view, unit } = scopeOf(call.id);
          const read = (): ReadonlyMap<string, string> => {
            const now = sources.feed.find("relation", view.id);
            const others = (now?.applications ?? []).filter((application) => application !== unit.application);
            const alive = others.flatMap((application) => [...sources.feed.unitsOf(application)]);
            return new Map(alive.filter(({ life }) => life === "alive").map(({ id }) => [id, ""]));
          };
          const { id, first } = addSetWatcher(sources, call, "RelationScopeWatcher", {
            topic: topics.everything,
            read,
            answer: ({ names, gone }) => ({ entered: names, left: gone }),
          });
          return { RelationScopeWatcherId: id, entered: first, left: [] };
        },
      },
      ...refusing({
        EnterScope: "a unit is in a relation while its task is on the network",
        LeaveScope: "a unit is in a relation while its task is on the network",
      }),
    },
  };
  return [relation, relationUnit];
}
