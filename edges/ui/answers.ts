/** Answers over HTTP, with the headers that keep other pages out, and the plain pages that say why something is refused. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { escaped } from "../../lib/escaped.ts";

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array;
}

/**
 * The only place of the page's policy: scripts, styles and connections come from this server, and no other page may show this
 * one in a frame.
 */
export const contentPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "worker-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join("; ");

/** In every answer. */
const commonHeaders: Readonly<Record<string, string>> = {
  "content-security-policy": contentPolicy,
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  // Not `no-referrer`: with it, browsers send the login form with the origin `null`.
  "referrer-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
  "cache-control": "no-store",
};

export function send(request: IncomingMessage, response: ServerResponse, { status, headers, body }: Answer): void {
  response.writeHead(status, { ...commonHeaders, "content-length": Buffer.byteLength(body), ...headers });
  response.end(request.method === "HEAD" ? undefined : body);
}

/** The answer to an upgrade that is refused, as bytes of HTTP/1.1. */
export function refusedUpgrade(status: number, sentence: string): string {
  const headers = { ...commonHeaders, "content-type": "text/plain; charset=utf-8", connection: "close" };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} Refused\r\n${lines.join("")}content-length: ${Buffer.byteLength(sentence)}\r\n\r\n${sentence}`;
}

interface PlainPage {
  readonly status: number;
  /** HTML of the page's main part. */
  readonly main: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Where `door.js` goes at once, with the fragment of the address; absent: it stays. */
  readonly goesTo?: string;
}

/** A page of a few lines, which loads `door.css` and `door.js` only. */
export function plainPage({ status, main, headers = {}, goesTo }: PlainPage): Answer {
  const body = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <title>Muster</title>
    <link rel="stylesheet" href="/door.css" />
    <script src="/door.js" defer></script>
  </head>
  <body${goesTo === undefined ? "" : ` data-to="${escaped(goesTo)}"`}>
    <main>
      <h1>Muster</h1>
      ${main}
    </main>
  </body>
</html>
`;
  return { status, headers: { "content-type": "text/html; charset=utf-8", ...headers }, body };
}

/** A page with one sentence. */
export function sentencePage(status: number, sentence: string, headers: Readonly<Record<string, string>> = {}): Answer {
  return plainPage({ status, main: `<p role="alert">${escaped(sentence)}</p>`, headers });
}
