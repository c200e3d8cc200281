/** What a change of a service would do, by `Operator.PlanService`, and the button that does it. */
import { Fragment } from "preact";
import { useEffect, useState } from "preact/hooks";
import { isLive, objects, unary } from "../../cluster-state.ts";
import { failureText } from "../../model/cluster/failures.ts";
import { versionOf } from "../../model/cluster/objects.ts";
import { isNothing, planTotals, stepRow } from "../../model/cluster/plan-text.ts";
import type { Action } from "../../model/cluster/permissions.ts";
import {
  ControlService,
  CreateServiceRequest,
  OperatorService,
  PlanServiceRequest,
  UpdateServiceRequest,
  UpdateServiceRequest_Rollback,
  type PlanServiceResponse,
  type Service,
  type ServiceSpec,
} from "../../../proto/gen/cluster.ts";
import { ActButton } from "./parts.tsx";

/** Steps shown at first. */
const stepsShown = 40;

export interface Wish {
  /** The end of a sentence: `Cannot …: why`. */
  readonly what: string;
  readonly button: string;
  readonly action: Action;
  /** Empty: a new service. */
  readonly serviceId: string;
  /** The spec wanted, given the service as it is now (null: a new one); null: the previous spec. */
  readonly spec: (now: Service | null) => ServiceSpec | null;
  /** Does something other than to write the spec. */
  readonly act?: () => Promise<unknown>;
  /** `id`: of the service. */
  readonly done: (id: string) => void;
}

/** A wish with the state on which its plan is based. */
interface Planned {
  readonly now: Service | null;
  readonly spec: ServiceSpec | null;
  readonly plan: PlanServiceResponse;
}

async function planOf({ serviceId, spec: specOf }: Wish): Promise<Planned> {
  const now = serviceId === "" ? null : (objects.value.services.get(serviceId) ?? null);
  const spec = specOf(now);
  const plan = await unary(
    OperatorService.methods.PlanService,
    PlanServiceRequest.create({ serviceId, spec, rollback: spec === null }),
  );
  return { now, spec, plan };
}

async function perform(wish: Wish, { now, spec }: Planned): Promise<string> {
  const { methods } = ControlService;
  if (wish.act !== undefined) {
    await wish.act();
    return wish.serviceId;
  }
  if (now === null) {
    const { service } = await unary(methods.CreateService, CreateServiceRequest.create({ spec }));
    return service?.id ?? "";
  }
  await unary(
    methods.UpdateService,
    UpdateServiceRequest.create({
      serviceId: now.id,
      // The version that was planned: a change by somebody else in the meantime is a conflict.
      serviceVersion: now.meta?.version ?? null,
      spec: spec ?? now.spec,
      rollback: spec === null ? UpdateServiceRequest_Rollback.PREVIOUS : UpdateServiceRequest_Rollback.NONE,
    }),
  );
  return now.id;
}

function Steps({ plan }: { readonly plan: PlanServiceResponse }) {
  const [isWhole, setWhole] = useState(false);
  const steps = isWhole ? plan.steps : plan.steps.slice(0, stepsShown);
  const left = plan.steps.length - steps.length + plan.stepsOmitted;
  if (steps.length === 0) return null;
  return (
    <>
      <table class="steps-table">
        <thead>
          <tr>
            {["Batch", "Action", "Task", "From", "To"].map((text) => (
              <th key={text} scope="col">
                {text}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {steps.map((step, index) => {
            const row = stepRow(step, plan.name);
            return (
              <Fragment key={index}>
                <tr>
                  <td>{row.batch}</td>
                  <td class={`step ${row.action}`}>{row.action}</td>
                  <td>{row.task}</td>
                  <td>{row.from}</td>
                  <td class={row.to === "pending" ? "warn" : ""}>{row.to}</td>
                </tr>
                <tr class="reasons">
                  <td colSpan={5}>{row.why}</td>
                </tr>
              </Fragment>
            );
          })}
        </tbody>
      </table>
      {left > 0 && (
        <p>
          and {left} more{" "}
          {!isWhole && plan.steps.length > stepsShown && (
            <button type="button" onClick={() => setWhole(true)}>
              Show them
            </button>
          )}
        </p>
      )}
    </>
  );
}

function PlanText({ plan }: { readonly plan: PlanServiceResponse }) {
  return (
    <>
      <p class="totals">
        {planTotals(plan)}
        {isNothing(plan) && ". No task changes."}
      </p>
      {plan.waits.map(({ nodes, tasks, text }, index) => (
        <div key={index} class="failure">
          {tasks} {tasks === 1 ? "task" : "tasks"} would stay pending: {text}
          <ul>
            {nodes.map((node, at) => (
              <li key={at}>{node}</li>
            ))}
          </ul>
        </div>
      ))}
      {plan.nodes.length > 0 && (
        <ul class="nodes-after" aria-label="Tasks by node, before and after">
          {plan.nodes.map(({ after, before, id, name }) => (
            <li key={id} class={after === before ? "" : "differs"}>
              {name || id} <b>{before === after ? before : `${before} → ${after}`}</b>
            </li>
          ))}
        </ul>
      )}
      <Steps plan={plan} />
      {plan.notes.map((note, index) => (
        <p key={index} class="note">
          {note}
        </p>
      ))}
    </>
  );
}

export function Plan({ wish, onClose }: { readonly wish: Wish; readonly onClose: () => void }) {
  const [planned, setPlanned] = useState<Planned | null>(null);
  const [failure, setFailure] = useState("");
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    let isShown = true;
    setFailure("");
    planOf(wish).then(
      (result) => isShown && setPlanned(result),
      (error: unknown) => isShown && setFailure(failureText(`plan to ${wish.what}`, error)),
    );
    return () => void (isShown = false);
  }, [wish, attempt]);
  const now = objects.value.services.get(wish.serviceId);
  const isOld = planned?.now != null && now !== undefined && versionOf(now) !== versionOf(planned.now);
  const again = (
    <button type="button" disabled={!isLive.value} onClick={() => setAttempt(attempt + 1)}>
      Plan again
    </button>
  );
  return (
    <section class="plan" aria-label="Plan">
      <h3>Plan: {wish.what}</h3>
      {failure !== "" && (
        <p class="failure" role="alert">
          {failure} {again}
        </p>
      )}
      {planned === null ? (
        failure === "" && <p class="empty">Planning …</p>
      ) : (
        <>
          {isOld && (
            <p class="failure" role="status">
              The service has changed since this plan was made. {again}
            </p>
          )}
          <PlanText plan={planned.plan} />
        </>
      )}
      <p class="buttons">
        {planned !== null && (
          <ActButton
            action={wish.action}
            what={wish.what}
            isMain
            act={async () => wish.done(await perform(wish, planned))}
          >
            {wish.button}
          </ActButton>
        )}
        <button type="button" onClick={onClose}>
          Cancel
        </button>
      </p>
    </section>
  );
}
