/** Lets browsers in: with a one-time token (`muster ui`, `token-door.ts`) or a login (a manager, `login-door.ts`). */
import type { IncomingMessage } from "node:http";
import type { Subscription } from "../../runtime/ports/index.ts";
import type { Answer } from "./answers.ts";
import type { UiSession } from "./backend.ts";

/** A browser with a valid cookie. */
export interface Visitor {
  /** Whose pages are counted together. */
  readonly user: string;
  /** `address`: IP address of the browser. Rejects with an Error whose message the page shows. */
  open(address: string): Promise<UiSession>;
  /** Calls back once, when the cookie is not valid any more because the login has ended. */
  onLeft?(listener: () => void): Subscription;
}

export interface Door {
  /** The origin that pages of this server have if `host` is the `Host` of their requests; null if it is not this server's. */
  originOf(host: string): string | null;
  /** What to do when `originOf` is null. */
  readonly wrongHost: string;
  /** Answers requests to paths of its own; null for every other. Only of this server's origin, unless it is a GET. */
  answer(request: IncomingMessage, url: URL): Promise<Answer> | Answer | null;
  /** Null without a valid cookie. */
  visitorOf(request: IncomingMessage): Visitor | null;
  /** The page for a browser without a valid cookie; its status is 401. */
  refusal(request: IncomingMessage): Answer;
}

/** The value of a cookie; empty if absent. */
export function cookieOf({ headers }: Pick<IncomingMessage, "headers">, name: string): string {
  for (const each of (headers.cookie ?? "").split(";")) {
    const at = each.indexOf("=");
    if (at > 0 && each.slice(0, at).trim() === name) return each.slice(at + 1).trim();
  }
  return "";
}

/**
 * Whether a browser comes from another site and so sends no `SameSite=Strict` cookie, although it may have one: `door.js` then
 * goes to the same address once more, from this site.
 */
export function mayHaveCookie({ headers, url = "" }: IncomingMessage): boolean {
  const site = headers["sec-fetch-site"];
  return (
    (site === "cross-site" || site === "same-site") && headers["sec-fetch-mode"] === "navigate" && url !== "/?again"
  );
}
