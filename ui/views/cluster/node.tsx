/** A node: its state, its tasks, and its availability, which administrators change. */
import { useState } from "preact/hooks";
import { nodeName, objects, unary, version } from "../../cluster-state.ts";
import { versionOf } from "../../model/cluster/objects.ts";
import {
  availabilityEffect,
  availabilityName,
  availabilityOf,
  bytesText,
  cpusOf,
  memoryOf,
  nodeState,
  roleName,
} from "../../model/cluster/nodes.ts";
import { byAge, isEnded, taskName } from "../../model/cluster/tasks.ts";
import {
  ControlService,
  NodeSpec,
  NodeSpec_Availability,
  UpdateNodeRequest,
  type Node,
  type Task,
} from "../../../proto/gen/cluster.ts";
import { ActorLinks } from "./actor-links.tsx";
import { ActButton, OpenButton } from "./parts.tsx";
import { SpecView } from "./spec.tsx";
import { TasksTable } from "./tasks-table.tsx";
import { Why } from "./why.tsx";

const verbs: readonly (readonly [NodeSpec_Availability, string])[] = [
  [NodeSpec_Availability.ACTIVE, "Activate"],
  [NodeSpec_Availability.PAUSE, "Pause"],
  [NodeSpec_Availability.DRAIN, "Drain"],
];

function Change({ node, tasks }: { readonly node: Node; readonly tasks: readonly Task[] }) {
  const [wanted, setWanted] = useState<NodeSpec_Availability | null>(null);
  const name = nodeName.value(node.id);
  const now = availabilityOf(node);
  const verb = verbs.find(([each]) => each === wanted)?.[1] ?? "";
  return (
    <>
      <p class="buttons">
        {verbs
          .filter(([each]) => each !== now)
          .map(([each, text]) => (
            <OpenButton key={each} action="updateNode" isOpen={wanted === each} onClick={() => setWanted(each)}>
              {text} …
            </OpenButton>
          ))}
      </p>
      {wanted !== null && (
        <section class="plan" aria-label="Plan">
          <h3>
            Plan: {verb.toLowerCase()} {name}
          </h3>
          <p>{availabilityEffect(wanted, name, tasks, (task) => task.serviceAnnotations?.name || task.serviceId)}</p>
          <p class="buttons">
            <ActButton
              action="updateNode"
              what={`${verb.toLowerCase()} ${name}`}
              isMain
              act={async () => {
                await unary(
                  ControlService.methods.UpdateNode,
                  UpdateNodeRequest.create({
                    nodeId: node.id,
                    nodeVersion: node.meta?.version ?? null,
                    spec: NodeSpec.patch(node.spec ?? NodeSpec.create({}), { availability: wanted }),
                  }),
                );
                setWanted(null);
              }}
            >
              {verb} {name}
            </ActButton>
            <button type="button" onClick={() => setWanted(null)}>
              Cancel
            </button>
          </p>
        </section>
      )}
    </>
  );
}

export function NodeDetail({ id }: { readonly id: string }) {
  void version.value;
  const node = objects.value.nodes.get(id);
  if (node === undefined) return <p class="empty">There is no node with the id {id}. It may have been removed.</p>;
  const tasks = [...objects.value.tasks.values()]
    .filter(({ nodeId }) => nodeId === id)
    .toSorted((a, b) => Number(isEnded(a)) - Number(isEnded(b)) || byAge(a, b));
  const cpus = cpusOf(node, tasks);
  const memory = memoryOf(node, tasks);
  const { description } = node;
  const state = nodeState(node);
  const labels = { ...description?.engine?.labels, ...node.spec?.annotations?.labels };
  const facts: readonly (readonly [string, string])[] = [
    ["State", `${state}${node.status?.message ? `: ${node.status.message}` : ""}`],
    ["Availability", availabilityName(availabilityOf(node))],
    ["Role", roleName(node)],
    ["Address", node.status?.addr ?? ""],
    ["Platform", [description?.platform?.os, description?.platform?.architecture].filter(Boolean).join("/")],
    ["Engine", description?.engine?.engineVersion ?? ""],
    ["CPUs", cpus.total === 0 ? "" : `${Math.round(cpus.reserved * 100) / 100} of ${cpus.total} reserved`],
    ["Memory", memory.total === 0 ? "" : `${bytesText(memory.reserved)} of ${bytesText(memory.total)} reserved`],
    [
      "Labels",
      Object.entries(labels)
        .map(([name, value]) => `${name}=${value}`)
        .join(", "),
    ],
    ["Id", id],
  ];
  return (
    <>
      <h2>{nodeName.value(id)}</h2>
      <dl class="facts">
        {facts.map(
          ([name, text]) =>
            text !== "" && (
              <>
                <dt>{name}</dt>
                <dd class={name === "State" && state !== "ready" ? "warn" : ""}>{text}</dd>
              </>
            ),
        )}
      </dl>
      <Change node={node} tasks={tasks} />
      <Why id={id} changes={versionOf(node)} />
      <h3>
        Tasks <small>{tasks.length}</small>
      </h3>
      <TasksTable tasks={tasks} nameOf={(task) => taskName(task, nodeName.value)} place="none" />
      <ActorLinks id={id} />
      <SpecView codec={NodeSpec} spec={node.spec} />
    </>
  );
}
