/** A task: its state, what it waits for, its output, and a terminal in it. */
import { nodeName, objects, offers, version } from "../../cluster-state.ts";
import { versionOf } from "../../model/cluster/objects.ts";
import { imageOf, isEnded, lookOf, stateName, stateOf, taskName } from "../../model/cluster/tasks.ts";
import { TaskSpec, type Task } from "../../../proto/gen/cluster.ts";
import { ActorLinks } from "./actor-links.tsx";
import { LogsPanel } from "./logs.tsx";
import { For, linkTo, LookText } from "./parts.tsx";
import { SpecView } from "./spec.tsx";
import { TerminalPanel } from "./terminal-panel.tsx";
import { Why } from "./why.tsx";

function Facts({ task }: { readonly task: Task }) {
  const { container } = task.status ?? { container: null };
  const addresses = task.networks.flatMap((each) => each.addresses).join(", ");
  return (
    <dl class="facts">
      <dt>State</dt>
      <dd>
        <LookText task={task} text={stateName(stateOf(task))} />, <For since={task.status?.timestamp} />
      </dd>
      <dt>Wanted</dt>
      <dd>{stateName(task.desiredState)}</dd>
      {task.status?.message ? (
        <>
          <dt>Message</dt>
          <dd>{task.status.message}</dd>
        </>
      ) : null}
      {task.status?.err ? (
        <>
          <dt>Error</dt>
          <dd class="warn">{task.status.err}</dd>
        </>
      ) : null}
      {container !== null && isEnded(task) && (
        <>
          <dt>Exit code</dt>
          <dd>{container.exitCode}</dd>
        </>
      )}
      <dt>Service</dt>
      <dd>
        <a href={linkTo("service", task.serviceId)}>{task.serviceAnnotations?.name || task.serviceId}</a>
      </dd>
      <dt>Node</dt>
      <dd>{task.nodeId === "" ? "none" : <a href={linkTo("node", task.nodeId)}>{nodeName.value(task.nodeId)}</a>}</dd>
      {imageOf(task) !== "" && (
        <>
          <dt>{task.spec?.container == null ? "Driver" : "Image"}</dt>
          <dd>{imageOf(task)}</dd>
        </>
      )}
      {addresses !== "" && (
        <>
          <dt>Addresses</dt>
          <dd>{addresses}</dd>
        </>
      )}
      <dt>Id</dt>
      <dd>{task.id}</dd>
    </dl>
  );
}

export function TaskDetail({ id }: { readonly id: string }) {
  void version.value;
  const task = objects.value.tasks.get(id);
  if (task === undefined)
    return <p class="empty">There is no task with the id {id}. Tasks are removed some time after their end.</p>;
  return (
    <>
      <h2>{taskName(task, nodeName.value)}</h2>
      <Facts task={task} />
      {offers("openTerminal") && lookOf(task) === "running" && <TerminalPanel taskId={id} />}
      <Why id={id} changes={versionOf(task)} />
      <LogsPanel target={{ taskIds: [id] }} />
      <ActorLinks id={id} />
      <SpecView codec={TaskSpec} spec={task.spec} />
    </>
  );
}
