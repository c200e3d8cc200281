/**
 * The part of the page's address after `#`, which names the view, the actor, and the moment that is shown:
 * `#/actor/PROCESS/ACTOR?at=2026-11-25T22:58:12.123Z&step=12`.
 */

export type Route =
  | { readonly view: "actors" }
  | { readonly view: "actor"; readonly process: string; readonly actor: string }
  | { readonly view: "sequence"; readonly trace: string }
  | ClusterRoute;

/** `new` and `new-network`: the forms for a new service and a new network. */
export type ClusterRoute =
  | { readonly view: "cluster"; readonly part: "overview" | "new" | "new-network" }
  | { readonly view: "cluster"; readonly part: ClusterKind; readonly id: string };

const clusterKinds = ["service", "task", "node", "network"] as const;
export type ClusterKind = (typeof clusterKinds)[number];

/** A moment of the past. */
export interface Moment {
  /** Milliseconds since the epoch, by the processes' clocks. */
  readonly atMs: number;
  /** Steps up to and including this one (`TimelineStep.index`) have been taken; 0: all up to `atMs`. */
  readonly step: number;
}

/** An address that names nothing leads to the actors. */
export function routeOf(hash: string): Route {
  const [path = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view, first = "", second = ""] = path.split("/").map(decoded);
  if (view === "actor" && first !== "" && second !== "") return { view, process: first, actor: second };
  if (view === "sequence") return { view, trace: first };
  if (view === "cluster") {
    const part = clusterKinds.find((kind) => kind === first);
    if (part !== undefined && second !== "") return { view, part, id: second };
    return { view, part: first === "new" || first === "new-network" ? first : "overview" };
  }
  return { view: "actors" };
}

/** Null: the present. `at` is a time in ISO 8601, or milliseconds since the epoch. */
export function momentOf(hash: string): Moment | null | "unreadable" {
  const query = new URLSearchParams(hash.split("?").slice(1).join("?"));
  const at = query.get("at");
  if (at === null) return null;
  const atMs = new Date(/^\d+$/.test(at) ? Number(at) : at).getTime();
  if (Number.isNaN(atMs)) return "unreadable";
  const step = Number(query.get("step") ?? 0);
  return { atMs, step: Number.isSafeInteger(step) && step > 0 ? step : 0 };
}

/** `moment`: null is the present. */
export function hashOf(route: Route, moment: Moment | null): string {
  if (moment === null) return pathOf(route);
  const step = moment.step === 0 ? "" : `&step=${moment.step}`;
  return `${pathOf(route)}?at=${new Date(moment.atMs).toISOString()}${step}`;
}

function pathOf(route: Route): string {
  if (route.view === "actor") return `#/actor/${encodeURIComponent(route.process)}/${encodeURIComponent(route.actor)}`;
  if (route.view === "sequence") return `#/sequence/${encodeURIComponent(route.trace)}`;
  if (route.view !== "cluster") return "#/actors";
  if (route.part === "overview") return "#/cluster";
  return !("id" in route) ? `#/cluster/${route.part}` : `#/cluster/${route.part}/${encodeURIComponent(route.id)}`;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return "";
  }
}
