/**
 * Muster: commands of muster that Juju has no request for. Each makes the same request as the command, on behalf of the
 * caller.
 */
import {
  ControlRolloutRequest,
  ControlRolloutRequest_Action,
  NodeRole,
  NodeSpec,
  PlanRebalanceRequest,
  PlanServiceRequest,
  UpdateNodeRequest,
  type ServiceSpec,
} from "../../../proto/gen/messages.ts";
import type { Call, Facade, Method } from "../facade.ts";
import type { Params } from "../params.ts";
import { RequestError } from "../request-error.ts";
import type { Json } from "../results.ts";
import { controlMethod } from "./control.ts";
import { withConstraints } from "./constraints.ts";
import { logMethods } from "./logs.ts";
import { planResult, rebalanceResult, rolloutResult } from "./muster-results.ts";
import type { ClientParts } from "./parts.ts";
import { withConfig, withImage, withScale } from "./service-spec.ts";
import { machineOfTag } from "./subjects.ts";
import { taskMethods } from "./task-reports.ts";

const rollouts = {
  Rollout: ControlRolloutRequest_Action.LOOK,
  PauseRollout: ControlRolloutRequest_Action.PAUSE,
  ResumeRollout: ControlRolloutRequest_Action.RESUME,
  StepRollout: ControlRolloutRequest_Action.STEP,
  AbortRollout: ControlRolloutRequest_Action.ABORT,
} as const;

export function musterFacades(parts: ClientParts): readonly Facade[] {
  return [
    {
      type: "Muster",
      versions: [1],
      who: "users",
      scope: "model",
      id: "none",
      methods: {
        Promote: changingRole(parts, NodeRole.MANAGER),
        Demote: changingRole(parts, NodeRole.WORKER),
        ...rolloutMethods(parts),
        ...planMethods(parts),
        Control: controlMethod(parts.sources),
        ...logMethods(parts),
        ...taskMethods(parts),
      },
    },
  ];
}

/** Managers control the whole cluster, so changing them requires an admin. */
function changingRole({ sources, subjects }: ClientParts, desiredRole: NodeRole): Method {
  return {
    needs: "admin",
    async run(call) {
      const { id: nodeId, meta, spec } = subjects.node(machineOf(call.params));
      const isChange = spec?.desiredRole !== desiredRole;
      if (isChange) {
        const nodeVersion = meta?.version ?? null;
        const changed = NodeSpec.patch(spec ?? NodeSpec.create({}), { desiredRole });
        await sources.control.UpdateNode(UpdateNodeRequest.create({ nodeId, nodeVersion, spec: changed }), call.rpc);
      }
      return { changed: isChange };
    },
  };
}

/** A number or a tag. */
function machineOf(params: Params): string {
  const text = params.text("machine", "machine-tag");
  return /^\d+$/.test(text) ? text : machineOfTag(text);
}

function rolloutMethods({ sources, services, subjects }: ClientParts): Record<string, Method> {
  const controlling = (action: ControlRolloutRequest_Action): Method => ({
    needs: action === ControlRolloutRequest_Action.LOOK ? "read-only" : "operator",
    async run(call) {
      const { serviceId } = subjects.application(call.params.text("application"));
      const request = ControlRolloutRequest.create({ service: serviceId, action });
      return rolloutResult(await sources.operator.ControlRollout(request, call.rpc));
    },
  });
  return {
    Rollback: {
      needs: "operator",
      async run(call) {
        await services.rollBack(call, call.params.text("application"));
        return {};
      },
    },
    ...Object.fromEntries(Object.entries(rollouts).map(([name, action]) => [name, controlling(action)])),
  };
}

function planMethods({ sources, services, subjects }: ClientParts): Record<string, Method> {
  const plan = async (call: Call, request: Partial<PlanServiceRequest>): Promise<Json> => {
    return planResult(await sources.operator.PlanService(PlanServiceRequest.create(request), call.rpc));
  };
  return {
    PlanDeploy: {
      needs: "read-only",
      run: (call) =>
        plan(call, {
          spec: services.specOf({
            name: call.params.text("application"),
            charmUrl: call.params.text("charm-url"),
            units: call.params.integer("num-units"),
            config: call.params.map("config"),
            constraints: call.params.object("constraints"),
            machines: [],
            networks: call.params.texts("networks"),
          }),
        }),
    },
    Plan: {
      needs: "read-only",
      run(call) {
        const { id: serviceId, spec } = subjects.service(call.params.text("application"));
        return plan(call, { serviceId, spec: spec === null ? null : changed(spec, call.params) });
      },
    },
    PlanRollback: {
      needs: "read-only",
      run: (call) => plan(call, { serviceId: subjects.service(call.params.text("application")).id, rollback: true }),
    },
    PlanRebalance: {
      needs: "read-only",
      async run(call) {
        const names = call.params.texts("applications");
        const all = call.params.flag("all");
        if (all && names.length > 0)
          throw new RequestError("applications and all are mutually exclusive", "bad request");
        const serviceIds = names.map((name) => subjects.application(name).serviceId);
        const request = PlanRebalanceRequest.create({ serviceIds, all });
        return rebalanceResult(await sources.operator.PlanRebalance(request, call.rpc));
      },
    },
  };
}

/** The spec after all the changes that the Application facade would make. */
function changed(spec: ServiceSpec, params: Params): ServiceSpec {
  const image = params.text("charm-url");
  const scale = params.integer("scale");
  const withIt = image === "" ? spec : withImage(spec, image);
  const scaled = scale === null ? withIt : withScale(withIt, scale);
  const configured = params.has("config") ? withConfig(scaled, params.map("config")) : scaled;
  return params.has("constraints") ? withConstraints(configured, params.object("constraints")) : configured;
}
