/** The rollout of a service: its phase, what blocks it, and the buttons that control it. */
import { useEffect, useState } from "preact/hooks";
import { isLive, read, unary } from "../../cluster-state.ts";
import { CallError } from "../../model/call-error.ts";
import { failureText } from "../../model/cluster/failures.ts";
import { rolloutButtons, serviceName, type RolloutButton } from "../../model/cluster/services.ts";
import { timeOf } from "../../model/cluster/tasks.ts";
import {
  ControlRolloutRequest,
  ControlRolloutRequest_Action,
  OperatorService,
  type ControlRolloutResponse,
  type Service,
} from "../../../proto/gen/cluster.ts";
import { moment, now } from "../../state.ts";
import { durationText } from "../texts.ts";
import { ActButton, For, linkTo, OpenButton } from "./parts.tsx";
import type { Wish } from "./plan.tsx";

/** Milliseconds between looks while nothing changes: what blocks a rollout also changes with time. */
const lookMs = 3_000;

const control = (service: string, action: ControlRolloutRequest_Action): Promise<ControlRolloutResponse> =>
  unary(OperatorService.methods.ControlRollout, ControlRolloutRequest.create({ service, action }));

const parts = ["done", "changing", "waiting", "failed"] as const;

function Bar({ view }: { readonly view: ControlRolloutResponse }) {
  const total = parts.reduce((sum, part) => sum + view[part], 0);
  if (total === 0) return null;
  return (
    <ul class="rollout-bar" aria-label="Slots of the rollout">
      {parts.map(
        (part) =>
          view[part] > 0 && (
            <li key={part} class={part} style={{ flexGrow: view[part] }}>
              {view[part]} {part}
            </li>
          ),
      )}
    </ul>
  );
}

function Deadline({ view }: { readonly view: ControlRolloutResponse }) {
  const at = timeOf(view.rollout?.deadline);
  if (at === null || view.updateStatus?.completedAt != null || view.phase.endsWith("paused")) return null;
  return <p>Fails in {durationText(at - now.value)} unless it is done.</p>;
}

interface RolloutProps {
  readonly service: Service;
  /** Looks again when this changes. */
  readonly changes: unknown;
  readonly plan: (wish: Wish) => void;
}

export function RolloutPanel({ service, changes, plan }: RolloutProps) {
  const [view, setView] = useState<ControlRolloutResponse | null>(null);
  const [failure, setFailure] = useState("");
  const live = isLive.value;
  const at = moment.value;
  const { id } = service;
  useEffect(() => {
    if (!live) return;
    let isShown = true;
    const look = (): void => {
      const { LOOK } = ControlRolloutRequest_Action;
      read(OperatorService.methods.ControlRollout, ControlRolloutRequest.create({ service: id, action: LOOK })).then(
        (answer) => {
          if (!isShown) return;
          setView(answer);
          setFailure("");
        },
        (error: unknown) => {
          if (isShown && !(error instanceof CallError && error.isGone))
            setFailure(failureText("look at the rollout", error));
        },
      );
    };
    look();
    const timer = at === null ? setInterval(look, lookMs) : undefined;
    return () => {
      isShown = false;
      clearInterval(timer);
    };
  }, [id, changes, live, at]);
  if (view === null || view.phase === "none")
    return failure === "" ? null : (
      <p class="failure" role="alert">
        {failure}
      </p>
    );
  const name = serviceName(service);
  const act = async ({ action }: RolloutButton): Promise<void> => setView(await control(id, action));
  const isOver = rolloutButtons(view.phase).length === 0;
  return (
    <section class={`rollout${isOver ? " over" : ""}`} aria-label="Rollout">
      <h3>
        Rollout{" "}
        <span class={`badge ${isOver ? "" : view.phase.endsWith("paused") ? "warn" : "moving"}`}>{view.phase}</span>
      </h3>
      {view.updateStatus !== null && <p>{view.updateStatus.message}</p>}
      {!isOver && <Bar view={view} />}
      {!isOver && <Deadline view={view} />}
      {view.blockers.length > 0 && !isOver && (
        <ul class="blockers" aria-label="What blocks it">
          {view.blockers.map(({ reason, since, taskId }) => (
            <li key={taskId}>
              waits for <a href={linkTo("task", taskId)}>{reason}</a> · <For since={since} />
            </li>
          ))}
        </ul>
      )}
      <p class="buttons">
        {rolloutButtons(view.phase).map((button) =>
          button.isPlanned ? (
            <OpenButton
              key={button.text}
              action="controlRollout"
              isOpen={false}
              onClick={() =>
                plan({
                  what: `abort the update of ${name} and roll back`,
                  button: "Abort and roll back",
                  action: "controlRollout",
                  serviceId: id,
                  spec: () => null,
                  act: () => act(button),
                  done: () => undefined,
                })
              }
            >
              {button.text}
            </OpenButton>
          ) : (
            <ActButton
              key={button.text}
              action="controlRollout"
              what={`${button.text.toLowerCase()} the rollout of ${name}`}
              title={button.title}
              act={() => act(button)}
            >
              {button.text}
            </ActButton>
          ),
        )}
      </p>
    </section>
  );
}
