/** What the JSON API's port answers over plain HTTP, before anybody has logged in: one JSON object for one small POST. */
import type { IncomingMessage, ServerResponse } from "node:http";

/** Of a request: a name, a password and what proves them take some hundred bytes. Beyond it 413. */
export const bodyBytesMax = 16 * 1024;

export interface Answer {
  readonly status: number;
  readonly body: object;
  /** Beside those of every answer. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** Null when it is too long. Rejects when the client goes. */
async function bodyOf(request: IncomingMessage): Promise<string | null> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > bodyBytesMax) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** Answers a POST by what `answer` makes of its body, and closes its connection. `refused` writes a refusal as that path's clients read it. */
export function answerPost(
  request: IncomingMessage,
  response: ServerResponse,
  refused: (status: number, message: string, code: string) => Answer,
  answer: (body: string) => Answer | Promise<Answer>,
): void {
  const decide = async (): Promise<Answer> => {
    if (request.method !== "POST") return refused(405, "POST is the only method here", "method not allowed");
    const body = await bodyOf(request);
    return body === null ? refused(413, `a body has at most ${bodyBytesMax} bytes`, "bad request") : answer(body);
  };
  decide().then(
    ({ status, body, headers }) => {
      response.writeHead(status, { "content-type": "application/json", connection: "close", ...headers });
      response.end(JSON.stringify(body));
    },
    () => response.destroy(),
  );
}
