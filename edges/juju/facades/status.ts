/** FullStatus, in the shape of who asks. */
import { selected } from "../entities/cluster-view.ts";
import { newStatus } from "../entities/status-new.ts";
import { oldStatus, oldestStatus } from "../entities/status-old.ts";
import type { Call, FacadeSources } from "../facade.ts";
import { serverVersion } from "../model.ts";
import { verbatim, type Json } from "../results.ts";

type Sources = Pick<FacadeSources, "feed" | "clock">;

export function fullStatus({ feed, clock }: Sources, { params, shape, session }: Call): Json {
  const view = selected(feed.view(), params.texts("patterns"));
  if (shape === "V0") return verbatim(oldStatus(view) as Json);
  return verbatim(newStatus(view, { nowMs: clock.now(), version: serverVersion(session.clientMajor) }) as Json);
}

/** The status of 2013. */
export function instances({ feed }: Sources): Json {
  return verbatim(oldestStatus(feed.view()) as Json);
}
