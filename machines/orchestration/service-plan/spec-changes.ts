/** The differences between a task and its service, as paths into the spec: `container.image`, `placement.constraints`. */
import { EndpointSpec, TaskSpec, type Service, type Task } from "../../../proto/gen/messages.ts";

/** Maximum paths shown; the rest are counted. */
const changesMax = 6;

type Json = { readonly [name: string]: unknown };

export function specChanges(task: Task, service: Service): readonly string[] {
  const found: string[] = [];
  const [before, after] = [task.spec, service.spec?.task ?? null];
  if (before !== null && after !== null) compare(TaskSpec.toJson(before), TaskSpec.toJson(after), "", found);
  const [ports, wanted] = [task.endpoint?.spec ?? null, service.spec?.endpoint ?? null];
  const isSame = (ports === null) === (wanted === null);
  if (!isSame) found.push("endpoint");
  else if (ports !== null && wanted !== null) {
    compare(EndpointSpec.toJson(ports), EndpointSpec.toJson(wanted), "endpoint.", found);
  }
  const shown = found.slice(0, changesMax);
  return found.length > shown.length ? [...shown, `${found.length - shown.length} more`] : shown;
}

function compare(before: Json, after: Json, path: string, found: string[]): void {
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const [a, b] = [before[name], after[name]];
    if (isObject(a) && isObject(b)) compare(a, b, `${path}${name}.`, found);
    else if (JSON.stringify(a) !== JSON.stringify(b)) found.push(`${path}${name}`);
  }
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
