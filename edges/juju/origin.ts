/**
 * Which pages may open the JSON API. Browsers send the origin of the connecting page, which pages cannot forge; other programs
 * send none, or any value.
 */

/** The origin of pages without one, such as local files. */
const opaque = "null";

/** Normalizes an origin from user input to the form that browsers send; null if it is invalid. */
export function parseOrigin(text: string): string | null {
  if (text === opaque) return opaque;
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) return null;
  return url.pathname === "/" && url.search === "" && url.hash === "" && url.username === "" ? url.origin : null;
}

/** The origin of pages that a server serves under `host`, as in a `Host` header, over TLS; null if it is not a host. */
export function originOfHost(host: string): string | null {
  return host !== "" && URL.canParse(`https://${host}`) ? new URL(`https://${host}`).origin : null;
}

/**
 * Whether to accept a handshake with this `Origin`. The API's own origin is always accepted: the host and port of the `Host`
 * header, over TLS. python-jujuclient sends the whole address that it connects to, with `wss`. `allowed`: from `parseOrigin`.
 */
export function isAllowedOrigin(origin: string, host: string, allowed: readonly string[]): boolean {
  if (origin === opaque) return allowed.includes(opaque);
  const url = URL.canParse(origin) ? new URL(origin) : null;
  if (url === null) return false;
  // Early Go clients send one with a path.
  if (allowed.includes(url.origin)) return true;
  return /^(?:https|wss):$/.test(url.protocol) && originOfHost(url.host) === originOfHost(host);
}
