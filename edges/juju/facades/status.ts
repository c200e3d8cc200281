/** FullStatus, in the request's shape. */
import { selected } from "../entities/cluster-view.ts";
import { newStatus } from "../entities/status-new.ts";
import { oldStatus, oldestStatus } from "../entities/status-old.ts";
import { statusText, type StatusTexts } from "../entities/status-text.ts";
import type { Call, FacadeSources } from "../facade.ts";
import type { Shape } from "../shape.ts";
import { serverVersion } from "../model.ts";
import { RequestError } from "../request-error.ts";
import { Encoded, verbatim, type Json } from "../results.ts";

type Sources = Pick<FacadeSources, "feed" | "clock">;

/** Each pattern is compared with every unit. */
const patternsMax = 100;

/** Replies to FullStatus; caches the texts. */
export function fullStatus({ feed, clock }: Sources): (call: Call) => Promise<Json> {
  const texts: { readonly [Each in Shape]: StatusTexts } = { V0: new WeakMap(), V1: new WeakMap() };
  const rest = (): Promise<void> => new Promise((resolve) => void clock.setTimeout(resolve, 0));
  return async ({ params, shape, session }) => {
    const patterns = params.texts("patterns");
    if (patterns.length > patternsMax)
      throw new RequestError(`more than ${patternsMax} patterns in one request`, "quota limit exceeded");
    const view = selected(feed.view(), patterns);
    const version = serverVersion(session.clientMajor);
    const form = shape === "V0" ? oldStatus : newStatus({ nowMs: clock.now(), version });
    return new Encoded(await statusText(view, form, texts[shape], rest));
  };
}

/** The status of 2013. */
export function instances({ feed }: Sources): Json {
  return verbatim(oldestStatus(feed.view()) as Json);
}
