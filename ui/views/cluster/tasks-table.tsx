/** Tasks of a service or a node. */
import { useState } from "preact/hooks";
import { nodeName } from "../../cluster-state.ts";
import { isEnded, stateName, stateOf, timeOf } from "../../model/cluster/tasks.ts";
import type { Task } from "../../../proto/gen/cluster.ts";
import { now } from "../../state.ts";
import { durationText } from "../texts.ts";
import { linkTo, LookText } from "./parts.tsx";

/** Rows shown at first: more are slow to lay out. */
const rowsShown = 60;

interface TasksTableProps {
  readonly tasks: readonly Task[];
  readonly nameOf: (task: Task) => string;
  /** Shows a column with the node. */
  readonly place: "node" | "none";
}

export function TasksTable({ tasks, nameOf, place }: TasksTableProps) {
  const [isWhole, setWhole] = useState(false);
  if (tasks.length === 0) return <p class="empty">No tasks.</p>;
  const rows = isWhole ? tasks : tasks.slice(0, rowsShown);
  return (
    <>
      <table class="tasks">
        <thead>
          <tr>
            <th scope="col">Task</th>
            <th scope="col">State</th>
            {place === "node" && <th scope="col">Node</th>}
            <th scope="col">For</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((task) => {
            const since = timeOf(task.status?.timestamp);
            return (
              <tr key={task.id} class={isEnded(task) ? "ended" : ""}>
                <td>
                  <a href={linkTo("task", task.id)}>{nameOf(task)}</a>
                </td>
                <td>
                  <LookText task={task} text={stateName(stateOf(task))} />
                  {task.status?.err ? <div class="warn">{task.status.err}</div> : null}
                </td>
                {place === "node" && (
                  <td>
                    {task.nodeId !== "" && <a href={linkTo("node", task.nodeId)}>{nodeName.value(task.nodeId)}</a>}
                  </td>
                )}
                <td>{since === null ? "" : durationText(now.value - since)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {rows.length < tasks.length && (
        <button type="button" onClick={() => setWhole(true)}>
          Show {tasks.length - rows.length} more
        </button>
      )}
    </>
  );
}
