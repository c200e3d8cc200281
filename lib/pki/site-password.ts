/**
 * The password by which a site's leaf node of NATS connects to a manager's NATS for nodes: derived from the worker's join token, so
 * that nothing is stored, and a rotation of the token revokes it. It permits to reach the managers, as a path to their port does; whoever
 * has it learns nothing of the token, and nothing of other sites' passwords.
 */
import { createHmac, timingSafeEqual } from "node:crypto";

/** Whether a site behind a leaf node may have this name, which is a token of subjects and a user of NATS. */
export function isLeafSite(name: string): boolean {
  return /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/.test(name);
}

/** `joinToken`: the worker's. */
export function sitePassword(joinToken: string, site: string): string {
  return createHmac("sha256", joinToken).update(`muster site\n${site}`).digest("base64url");
}

/** Always false for an empty token. */
export function isSitePassword(password: string, joinToken: string, site: string): boolean {
  const [given, right] = [Buffer.from(password), Buffer.from(sitePassword(joinToken, site))];
  return joinToken !== "" && isLeafSite(site) && given.length === right.length && timingSafeEqual(given, right);
}
