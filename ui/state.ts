/**
 * The page's state: what views read. Feeds are applied as they arrive, and views are redrawn once a frame. While a moment of the
 * past is shown (`past`), the live actors are kept current without moving the picture.
 */
import { computed, signal } from "@preact/signals";
import { ActorSelection, InspectionService, WatchActorsRequest } from "../proto/gen/page.ts";
import { Connection, type Link } from "./connection.ts";
import { charts } from "./gen/charts.ts";
import { Actors, type Actor } from "../proto/feed/actors.ts";
import type { ChartDefinition } from "../proto/feed/chart-definition.ts";
import type { Past } from "./model/past.ts";
import { hashOf, momentOf, routeOf, type Moment, type Route } from "./model/route.ts";
import { stuckActors } from "../proto/feed/stuck.ts";

/** Milliseconds between looks for stuck actors and renewals of the tree: a reader sees no difference to each frame. */
const slowTickMs = 500;
/** Milliseconds between changes of countdowns. */
const clockTickMs = 200;

export const liveActors = new Actors();
/** The picture of the past that is shown; null: the present. */
export const past = signal<Past | null>(null);
/** The actors that views show. */
export const shown = computed(() => past.value?.actors ?? liveActors);
/** The moment that views show, in milliseconds since the epoch; null: the present. */
export const moment = computed(() => past.value?.moment.atMs ?? null);
export const link = signal<Link>({ state: "connecting" });
/** Why the feed ended although the connection is live; empty: it has not. */
export const feedError = signal("");
/** Changes with the shown actors, at most once a frame. */
export const frame = signal(0);
/** Changes at most twice a second: live actors that have come and gone. */
const liveMembership = signal(0);
export const membership = computed(() => (past.value === null ? liveMembership.value : -1));
const liveStuck = signal<readonly Actor[]>([]);
/** Of the shown actors, the longest overdue first. */
export const stuck = computed(() => {
  const { value } = past;
  return value === null ? liveStuck.value : stuckActors(value.actors, value.moment.atMs);
});
/** The page's clock, in milliseconds since the epoch. */
export const clock = signal(Date.now());
/** The clock that views count by: it stands still in the past. */
export const now = computed(() => moment.value ?? clock.value);
const hash = signal(window.location.hash);
let latestRoute = routeOf(hash.peek());
/** Changes with the view or what it shows, not with the moment. */
export const route = computed(() => {
  const next = routeOf(hash.value);
  if (hashOf(next, null) !== hashOf(latestRoute, null)) latestRoute = next;
  return latestRoute;
});
/** The moment that the address names. */
export const addressed = computed(() => momentOf(hash.value));

/** The address of a view at the moment that is shown. */
export const addressOf = (to: Route): string => hashOf(to, past.value?.moment ?? null);

/** Writes a moment into the address. A way back to the present stays in the history of the browser. */
export function address(at: Moment | null): void {
  const next = hashOf(route.peek(), at);
  if (next === window.location.hash) return;
  if (at !== null && addressed.peek() === null) window.history.pushState(null, "", next);
  else window.history.replaceState(null, "", next);
  hash.value = next;
}

const definitions = new Map(charts.map((chart) => [chart.id, chart]));
export const chartOf = (machine: string): ChartDefinition | undefined => definitions.get(machine);

let isAsked = false;
export function changed(): void {
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    frame.value += 1;
  });
}

function liveChanged(): void {
  if (past.value === null) changed();
}

let connection: Connection | null = null;
let stopFeed: (() => void) | null = null;

/** A call over the page's connection, which ends without `onEnd` when the connection is lost. Only while `link` is live. */
export const call: Connection["call"] = (method, request, events) => {
  if (connection === null) throw new Error("the page has not started");
  return connection.call(method, request, events);
};

function watchActors(): void {
  feedError.value = "";
  stopFeed = call(InspectionService.methods.Watch, WatchActorsRequest.create({ selection: ActorSelection.create() }), {
    onMessage(feed) {
      liveActors.apply(feed, Date.now());
      liveChanged();
    },
    onEnd(status, error) {
      stopFeed = null;
      feedError.value = error === "" ? `the feed of actors has ended (status ${status})` : error;
      liveActors.disconnected();
      liveChanged();
    },
  });
}

/** A recording has no live feed. */
export function endFeed(): void {
  stopFeed?.();
  stopFeed = null;
  feedError.value = "";
}

export function start(): void {
  const hashChanged = (): void => void (hash.value = window.location.hash);
  window.addEventListener("hashchange", hashChanged);
  window.addEventListener("popstate", hashChanged);
  connection = new Connection((next) => {
    if (next.state === "lost" && link.value.state === "live") {
      liveActors.disconnected();
      liveChanged();
    }
    link.value = next;
    if (next.state === "live") watchActors();
  });
  setInterval(() => {
    if (liveActors.membership !== liveMembership.value) liveMembership.value = liveActors.membership;
    if (past.value !== null) return;
    const found = stuckActors(liveActors, Date.now());
    const same =
      found.length === liveStuck.value.length && found.every((actor, index) => actor === liveStuck.value[index]);
    if (!same) liveStuck.value = found;
  }, slowTickMs);
  setInterval(() => (clock.value = Date.now()), clockTickMs);
}
