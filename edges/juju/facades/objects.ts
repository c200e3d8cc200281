/**
 * The seed's object style: requests on entities by id, for agents (reference §3). An agent sees its own machine and the units
 * on it, a manager's agent all of them. They do not control the node, which has its session for that.
 */
import { NodeRole } from "../../../proto/gen/messages.ts";
import { constraintsOf } from "../entities/deltas.ts";
import { series } from "../entities/platform.ts";
import { statusLabels } from "../entities/words.ts";
import type { Call, Facade, FacadeSources } from "../facade.ts";
import { topics } from "../feed/feed.ts";
import { valueNews, type Watched } from "../feed/news.ts";
import { RequestError } from "../request-error.ts";
import { keyed, verbatim, type Json } from "../results.ts";
import { configOf, refusing, type ClientParts } from "./parts.ts";
import { removeMachine } from "./machines.ts";
import { settingPassword, userFacade } from "./passwords.ts";
import { livesOf, seed, addSetWatcher, watching, watchingNames } from "./by-id.ts";
import { relationFacades } from "./relations.ts";
import { addWatcher } from "./watchers.ts";

export function objectFacades(parts: ClientParts): readonly Facade[] {
  return [
    userFacade(parts.sources),
    machineFacade(parts),
    unitFacade(parts),
    serviceFacade(parts),
    ...relationFacades(parts),
    stateFacade(parts),
  ];
}

function isManager({ store }: FacadeSources, { session: { identity } }: Call): boolean {
  return identity.kind === "machine" && store.get("node", identity.nodeId)?.role === NodeRole.MANAGER;
}

function machineFacade(parts: ClientParts): Facade {
  const { sources, subjects, annotations } = parts;
  const isItself = ({ id, session: { identity } }: Call): boolean =>
    identity.kind === "machine" && subjects.machine(id).nodeId === identity.nodeId;
  const isOnIt = ({ id, session: { identity } }: Call): boolean =>
    identity.kind === "unit" && sources.store.get("task", identity.taskId)?.nodeId === subjects.machine(id).nodeId;
  const maySee = (call: Call): boolean => isItself(call) || isOnIt(call) || isManager(sources, call);
  const mayManage = (call: Call): boolean => isManager(sources, call);
  const unitsOf = (id: string): Pick<Watched, "topic" | "read"> => ({
    topic: topics.unitsOn(id),
    read: () => livesOf(sources.feed.unitsOn(id)),
  });
  return {
    ...seed,
    type: "Machine",
    who: "agents",
    id: "entity",
    lookUp: ({ id }) => void subjects.machine(id),
    methods: {
      Get: {
        needs: "read-only",
        allows: maySee,
        run({ id }) {
          const { nodeId, isManager: manages } = subjects.machine(id);
          return {
            id,
            "instance-id": nodeId,
            life: "alive",
            series,
            jobs: manages ? ["JobManageEnviron", "JobHostUnits"] : ["JobHostUnits"],
          };
        },
      },
      Life: { needs: "read-only", allows: maySee, run: () => ({ life: "alive" }) },
      Watch: { ...watching(sources, "machine"), allows: maySee },
      WatchUnits: { ...watchingNames(sources, "MachineUnitsWatcher", unitsOf), allows: maySee },
      WatchPrincipalUnits: { ...watchingNames(sources, "UnitsWatcher", unitsOf), allows: maySee },
      Status: {
        needs: "read-only",
        allows: maySee,
        run({ id }) {
          const { agent } = subjects.machine(id).words;
          return { status: agent.current, info: agent.message };
        },
      },
      SetStatus: {
        needs: "operator",
        allows: isItself,
        async run(call) {
          const status = call.params.text("status");
          if (status === "") throw new RequestError("a status is required", "bad request");
          const labels = new Map([
            [statusLabels.status, status],
            [statusLabels.info, call.params.text("info")],
          ]);
          await annotations.setMachine(call, call.id, labels);
          return {};
        },
      },
      SetAgentAlive: {
        needs: "operator",
        allows: isItself,
        // The node's session determines whether it is alive: a pinger only needs to be stoppable.
        run: ({ session }) => ({ "pinger-id": session.resources.add("Pinger", { stop: () => undefined }) }),
      },
      Constraints: { needs: "read-only", allows: mayManage, run: () => verbatim({ Constraints: {} }) },
      Remove: {
        needs: "operator",
        allows: mayManage,
        async run(call) {
          await removeMachine(parts, call, call.id, call.params.flag("force"));
          return {};
        },
      },
      SetPassword: settingPassword(
        sources,
        ({ id }) => ({ kind: "machine", nodeId: subjects.machine(id).nodeId }),
        (call) => isItself(call) || mayManage(call),
      ),
      ...refusing({
        EnsureDead: "a machine is dead when it is removed",
        SetProvisioned: "machines cannot be provisioned through this API",
        SetInstanceId: "a machine's instance is its node, whose id does not change",
      }),
    },
  };
}

function unitFacade({ sources, subjects }: ClientParts): Facade {
  const isItself = ({ id, session: { identity } }: Call): boolean =>
    identity.kind === "unit" && subjects.unit(id).taskId === identity.taskId;
  const isOnIts = ({ id, session: { identity } }: Call): boolean =>
    identity.kind === "machine" && subjects.unit(id).nodeId === identity.nodeId;
  const maySee = (call: Call): boolean => isItself(call) || isOnIts(call) || isManager(sources, call);
  return {
    ...seed,
    type: "Unit",
    who: "agents",
    id: "entity",
    lookUp: ({ id }) => void subjects.unit(id),
    methods: {
      Get: {
        needs: "read-only",
        allows: maySee,
        run({ id }) {
          const unit = subjects.unit(id);
          return verbatim({
            Name: unit.id,
            Service: unit.application,
            DeployerTag: unit.machine === "" ? "" : `machine-${unit.machine}`,
            MachineId: unit.machine,
            Life: unit.life,
            CharmURL: unit.charmUrl,
            PublicAddress: unit.publicAddress,
            PrivateAddress: unit.privateAddress,
          });
        },
      },
      Life: { needs: "read-only", allows: maySee, run: ({ id }) => ({ life: subjects.unit(id).life }) },
      Status: {
        needs: "read-only",
        allows: maySee,
        run({ id }) {
          const { old, workload } = subjects.unit(id).words;
          return { status: old, info: workload.message };
        },
      },
      Watch: { ...watching(sources, "unit"), allows: maySee },
      WatchConfig: {
        needs: "read-only",
        allows: maySee,
        run(call) {
          const { application } = subjects.unit(call.id);
          const read = (): Json => {
            const view = sources.feed.find("application", application);
            return { settings: view === undefined ? {} : keyed(view.env) };
          };
          const id = addWatcher(
            sources,
            call,
            "ConfigWatcher",
            valueNews(sources.feed, `application:${application}`, read),
          );
          return { ConfigWatcherId: id, ...(read() as { readonly [key: string]: Json }) };
        },
      },
      SetPassword: settingPassword(sources, ({ id }) => ({ kind: "unit", taskId: subjects.unit(id).taskId }), maySee),
      ...refusing({
        SetStatus: "a unit's status is its task's, which its node reports",
        EnsureDead: "a unit is dead when its task has ended",
      }),
    },
  };
}

function serviceFacade({ services, sources, subjects }: ClientParts): Facade {
  return {
    ...seed,
    type: "Service",
    who: "everybody",
    id: "entity",
    lookUp: ({ id }) => void subjects.application(id),
    methods: {
      Get: {
        needs: "read-only",
        run(call) {
          const view = subjects.application(call.id);
          return verbatim({
            Name: view.id,
            Life: view.life,
            Exposed: view.isExposed,
            CharmURL: view.charmUrl,
            MinUnits: 0,
            Constraints: constraintsOf(view) as Json,
            Config: configOf(view, call),
          });
        },
      },
      Life: { needs: "read-only", run: ({ id }) => ({ life: subjects.application(id).life }) },
      Rollback: {
        needs: "operator",
        allows: ({ session }) => session.identity.kind === "user",
        async run(call) {
          await services.rollBack(call, call.id);
          return {};
        },
      },
      Watch: watching(sources, "application"),
      WatchUnits: watchingNames(sources, "ServiceUnitsWatcher", (id) => ({
        topic: topics.unitsOf(id),
        read: () => livesOf(sources.feed.unitsOf(id)),
      })),
      WatchRelations: watchingNames(sources, "ServiceRelationsWatcher", (id) => ({
        topic: topics.kind("relation"),
        read: () =>
          new Map(
            sources.feed
              .view()
              .relations.filter(({ applications }) => applications.includes(id))
              .map((each) => [each.id, ""]),
          ),
      })),
    },
  };
}

function stateFacade({ sources, subjects }: ClientParts): Facade {
  const { feed } = sources;
  const allMachines = (): Map<string, string> => new Map(feed.view().machines.map(({ id }) => [id, "alive"]));
  const config = (): Json => {
    const { name, id } = feed.view().model;
    return {
      config: verbatim({ name, uuid: id, type: "muster", "agent-version": "1.24.5", "default-series": series }),
    };
  };
  return {
    ...seed,
    type: "State",
    who: "agents",
    id: "none",
    methods: {
      AllMachines: {
        needs: "read-only",
        allows: (call) => isManager(sources, call),
        run: () => ({
          machines: [...allMachines().keys()].map((id) => ({ id, "instance-id": subjects.machine(id).nodeId })),
        }),
      },
      WatchMachines: {
        needs: "read-only",
        allows: (call) => isManager(sources, call),
        run(call) {
          const { id, first } = addSetWatcher(sources, call, "LifecycleWatcher", {
            topic: topics.kind("machine"),
            read: allMachines,
            answer: ({ names, gone }) => ({ ids: [...names, ...gone] }),
          });
          return { LifecycleWatcherId: id, ids: first };
        },
      },
      WatchEnvironConfig: {
        needs: "read-only",
        run(call) {
          const id = addWatcher(sources, call, "EnvironConfigWatcher", valueNews(feed, topics.kind("model"), config));
          return { EnvironConfigWatcherId: id, ...(config() as { readonly [key: string]: Json }) };
        },
      },
    },
  };
}
