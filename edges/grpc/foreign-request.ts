/**
 * Requests over HTTP/2 that are not gRPC, such as a browser's or curl's. Each is answered with an HTTP error and a sentence
 * that says what is expected, as requests over HTTP/1 are (`http1.ts`). gRPC's own answer would be a status in trailers, which
 * such a client does not show.
 *
 * X1: a request is answered once, when it is complete: what HTTP/2 finds wrong with its end (RFC 9113 §8.1.1) counts before that.
 * X2: one that is longer than `foreignBytesMax` is answered at that point, and nothing of any is kept.
 */
import type { RequestHeaders } from "./http2/request-headers.ts";
import { httpError } from "./http2/response-headers.ts";
import type { Http2Stream, StreamReceiver } from "./http2/stream.ts";

/** Bytes of a request that is read to its end before it is answered: more than a form has. */
const foreignBytesMax = 64 * 1024;

const body = Buffer.from("this is a gRPC API: expected POST with the content type application/grpc\n");

const bodyFields = { "content-type": "text/plain; charset=utf-8", "content-length": String(body.length) };
/** RFC 9110 §15.5.6 asks for the methods that are allowed. */
const wrongMethod = httpError(405, { allow: "POST", ...bodyFields });
const wrongType = httpError(415, bodyFields);

class ForeignRequest implements StreamReceiver {
  readonly #stream: Http2Stream;
  readonly #answer: Buffer;
  readonly #hasBody: boolean;
  #bytes = 0;

  constructor(stream: Http2Stream, method: string) {
    this.#stream = stream;
    this.#answer = method === "POST" ? wrongType : wrongMethod;
    // RFC 9110 §9.3.2
    this.#hasBody = method !== "HEAD";
  }

  receive(chunk: Uint8Array): number {
    this.#bytes += chunk.length;
    if (this.#bytes > foreignBytesMax) this.received();
    return 0;
  }

  received(): void {
    const stream = this.#stream;
    if (stream.hasResponded) return;
    stream.respond(this.#answer);
    if (this.#hasBody) stream.sendFramed([body]);
    stream.finish();
  }

  closed(): void {}
}

/** True for what is not gRPC, which it answers with grpc-go's status codes: for a wrong method, and a wrong content type. */
export function refusesForeign(stream: Http2Stream, { method, contentType }: RequestHeaders): boolean {
  if (method === "POST" && contentType.startsWith("application/grpc")) return false;
  stream.receiver = new ForeignRequest(stream, method);
  return true;
}
