/** Plain HTTP on the JSON API's port, before login: one small JSON object in a POST, one in the reply. */
import type { IncomingMessage, ServerResponse } from "node:http";

/** Maximum size of a request body, beyond it 413; a name, a password and a proof take some hundred bytes. */
const bodyBytesMax = 16 * 1024;
/**
 * This much of a larger body is read and not kept, so that its sender reads the answer: a connection that is closed with unread
 * bytes is reset, and the answer with it. Beyond: it is reset.
 */
const discardedBytesMax = 1024 * 1024;

export interface Answer {
  readonly status: number;
  readonly body: object;
  /** Added to the headers of every reply. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** Null if the body is too long; the connection must then be closed. Rejects when the client disconnects. */
export async function bodyOf(request: IncomingMessage): Promise<string | null> {
  const chunks: Buffer[] = [];
  let size = 0;
  // The connection outlives the iteration, for the answer.
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > discardedBytesMax) break;
    if (size <= bodyBytesMax) chunks.push(chunk);
    else chunks.length = 0;
  }
  return size > bodyBytesMax ? null : Buffer.concat(chunks).toString("utf8");
}

/** Answers a POST with the result of `answer` and closes the connection. `refused` formats errors for clients of that path. */
export function answerPost(
  request: IncomingMessage,
  response: ServerResponse,
  refused: (status: number, message: string, code: string) => Answer,
  answer: (body: string) => Answer | Promise<Answer>,
): void {
  const decide = async (): Promise<Answer> => {
    if (request.method !== "POST") return refused(405, "only POST is allowed", "method not allowed");
    const body = await bodyOf(request);
    return body === null ? refused(413, `the body is larger than ${bodyBytesMax} bytes`, "bad request") : answer(body);
  };
  decide().then(
    ({ status, body, headers }) => {
      response.writeHead(status, { "content-type": "application/json", connection: "close", ...headers });
      response.end(JSON.stringify(body));
    },
    () => response.destroy(),
  );
}
