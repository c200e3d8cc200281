/**
 * A server between Docker's client and a manager: it records the manager's answers, and from then on gives them itself. The time of a
 * command against the recorded answers is the client's own.
 */
import { createServer, request, type IncomingMessage, type OutgoingHttpHeaders, type Server } from "node:http";
import type { Readable } from "node:stream";

/** Headers that concern one hop only: a recorded answer is sent whole, with its length. */
const hopHeaders = ["connection", "keep-alive", "transfer-encoding", "content-length"];

interface Answer {
  readonly status: number;
  readonly headers: OutgoingHttpHeaders;
  readonly body: Buffer;
}

interface Asked {
  readonly method: string;
  readonly path: string;
  readonly body: string;
}

async function whole(stream: Readable): Promise<Buffer> {
  return Buffer.concat((await stream.toArray()) as Buffer[]);
}

function ask(socketPath: string, message: IncomingMessage, body: Buffer): Promise<Answer> {
  const { method, url: path, headers } = message;
  return new Promise((resolve, reject) => {
    request({ socketPath, method, path, headers }, (response) => {
      const kept = Object.entries(response.headers).filter(([name]) => !hopHeaders.includes(name));
      const answer = { status: response.statusCode ?? 0, headers: Object.fromEntries(kept) };
      whole(response).then((read) => resolve({ ...answer, body: read }), reject);
    })
      .once("error", reject)
      .end(body);
  });
}

export class Replay {
  /** The recorded requests, in their order. */
  readonly asked: Asked[] = [];
  /** Answers to the same request, in their order. */
  readonly #answers = new Map<string, Answer[]>();
  readonly #given = new Map<string, number>();
  readonly #server: Server;
  #isRecording = true;

  private constructor(managerSocket: string) {
    this.#server = createServer((message, response) => {
      void whole(message).then(async (body) => {
        const answer = await this.#answerTo(managerSocket, message, body);
        response.writeHead(answer.status, { ...answer.headers, "content-length": answer.body.length }).end(answer.body);
      });
    });
  }

  static async start(managerSocket: string, socket: string): Promise<Replay> {
    const replay = new Replay(managerSocket);
    await new Promise<void>((resolve) => void replay.#server.listen(socket, resolve));
    return replay;
  }

  /** From now on, gives the recorded answers, beginning with the first. */
  rewind(): void {
    this.#isRecording = false;
    this.#given.clear();
  }

  stop(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  async #answerTo(managerSocket: string, message: IncomingMessage, body: Buffer): Promise<Answer> {
    const key = `${message.method} ${message.url}`;
    const answers = this.#answers.get(key) ?? [];
    if (this.#isRecording) {
      this.asked.push({ method: message.method ?? "GET", path: message.url ?? "/", body: body.toString() });
      const answer = await ask(managerSocket, message, body);
      this.#answers.set(key, [...answers, answer]);
      return answer;
    }
    const at = this.#given.get(key) ?? 0;
    this.#given.set(key, at + 1);
    const answer = answers[Math.min(at, answers.length - 1)];
    if (answer === undefined) throw new Error(`the client asked for something else: ${key}`);
    return answer;
  }
}
