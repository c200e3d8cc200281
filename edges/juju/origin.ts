/**
 * Which pages may open the JSON API. Browsers say the origin of the page that connects, and no page can say another; programs
 * say none, or what they like.
 */

/** `null` stands for pages without an origin, such as local files. */
const opaque = "null";

/** An origin as browsers write it, from what a person wrote; null: it is none. */
export function parseOrigin(text: string): string | null {
  if (text === opaque) return opaque;
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) return null;
  return url.pathname === "/" && url.search === "" && url.hash === "" && url.username === "" ? url.origin : null;
}

/**
 * Whether a handshake with this `Origin` is let in. Its own origin always is: the host and port of the `Host` header, over TLS.
 * python-jujuclient sends the whole address that it connects to, with `wss`. `allowed`: as `parseOrigin` returns them.
 */
export function isAllowedOrigin(origin: string, host: string, allowed: readonly string[]): boolean {
  if (origin === opaque) return allowed.includes(opaque);
  const url = URL.canParse(origin) ? new URL(origin) : null;
  if (url === null) return false;
  // Go's first clients write one with a path.
  if (allowed.includes(url.origin)) return true;
  const own = URL.canParse(`https://${host}`) ? new URL(`https://${host}`).host : null;
  return (url.protocol === "https:" || url.protocol === "wss:") && url.host === own;
}
