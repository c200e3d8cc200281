/** The page's state: what views read. Feeds are applied as they arrive, and views are redrawn once a frame. */
import { computed, signal } from "@preact/signals";
import { ActorSelection, InspectionService, WatchActorsRequest } from "../proto/gen/page.ts";
import { Connection, type Link } from "./connection.ts";
import { charts } from "./gen/charts.ts";
import { Actors, type Actor } from "../proto/feed/actors.ts";
import type { ChartDefinition } from "../proto/feed/chart-definition.ts";
import { routeOf } from "./model/route.ts";
import { stuckActors } from "../proto/feed/stuck.ts";

/** Milliseconds between looks for stuck actors and renewals of the tree: a reader sees no difference to each frame. */
const slowTickMs = 500;
/** Milliseconds between changes of countdowns. */
const clockTickMs = 200;

export const actors = new Actors();
export const link = signal<Link>({ state: "connecting" });
/** Why the feed ended although the connection is live; empty: it has not. */
export const feedError = signal("");
/** Changes with the actors, at most once a frame. */
export const frame = signal(0);
/** Changes at most twice a second: actors that have come and gone. */
export const membership = signal(0);
export const stuck = signal<readonly Actor[]>([]);
/** The page's clock, in milliseconds since the epoch. */
export const clock = signal(Date.now());
const hash = signal(window.location.hash);
export const route = computed(() => routeOf(hash.value));

const definitions = new Map(charts.map((chart) => [chart.id, chart]));
export const chartOf = (machine: string): ChartDefinition | undefined => definitions.get(machine);

let isAsked = false;
function changed(): void {
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    frame.value = actors.version;
  });
}

function watchActors(connection: Connection): void {
  feedError.value = "";
  connection.call(InspectionService.methods.Watch, WatchActorsRequest.create({ selection: ActorSelection.create() }), {
    onMessage(feed) {
      actors.apply(feed, Date.now());
      changed();
    },
    onEnd(status, error) {
      feedError.value = error === "" ? `the feed of actors has ended (status ${status})` : error;
      actors.disconnected();
      changed();
    },
  });
}

export function start(): void {
  window.addEventListener("hashchange", () => (hash.value = window.location.hash));
  const connection: Connection = new Connection((next) => {
    if (next.state === "lost" && link.value.state === "live") {
      actors.disconnected();
      changed();
    }
    link.value = next;
    if (next.state === "live") watchActors(connection);
  });
  setInterval(() => {
    if (actors.membership !== membership.value) membership.value = actors.membership;
    const found = stuckActors(actors, Date.now());
    const same = found.length === stuck.value.length && found.every((actor, index) => actor === stuck.value[index]);
    if (!same) stuck.value = found;
  }, slowTickMs);
  setInterval(() => (clock.value = Date.now()), clockTickMs);
}
