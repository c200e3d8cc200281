/** The part of the page's address after `#`, which names the view and the actor. */

export type Route =
  | { readonly view: "actors" }
  | { readonly view: "actor"; readonly process: string; readonly actor: string }
  | { readonly view: "sequence"; readonly trace: string };

/** An address that names nothing leads to the actors. */
export function routeOf(hash: string): Route {
  const [view, first = "", second = ""] = hash.replace(/^#\/?/, "").split("/").map(decoded);
  if (view === "actor" && first !== "" && second !== "") return { view, process: first, actor: second };
  if (view === "sequence") return { view, trace: first };
  return { view: "actors" };
}

export function hashOf(route: Route): string {
  if (route.view === "actor") return `#/actor/${encodeURIComponent(route.process)}/${encodeURIComponent(route.actor)}`;
  if (route.view === "sequence") return `#/sequence/${encodeURIComponent(route.trace)}`;
  return "#/actors";
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return "";
  }
}
