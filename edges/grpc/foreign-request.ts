/**
 * HTTP/2 requests that are not gRPC, such as a browser's or curl's. Each is answered with an HTTP error and a sentence that
 * says what is expected, like requests over HTTP/1 (`http1.ts`). gRPC's own answer would be a status in trailers, which such
 * clients do not show.
 *
 * X1: a request is answered once, when it is complete: an error at its end (RFC 9113 §8.1.1) takes precedence.
 * X2: a request longer than `foreignBytesMax` is answered at that point. No request's bytes are kept.
 */
import type { RequestHeaders } from "./http2/request-headers.ts";
import { httpError } from "./http2/response-headers.ts";
import type { Http2Stream, StreamReceiver } from "./http2/stream.ts";

/** Bytes of a request that are read before it is answered: more than a form has. */
const foreignBytesMax = 64 * 1024;

const body = Buffer.from("this is a gRPC API: expected POST with the content type application/grpc\n");

const bodyFields = { "content-type": "text/plain; charset=utf-8", "content-length": String(body.length) };
/** RFC 9110 §15.5.6 requires the allowed methods. */
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

/** True if the request is not gRPC; it is then answered with grpc-go's codes for a wrong method or content type. */
export function refusesForeign(stream: Http2Stream, { method, contentType }: RequestHeaders): boolean {
  if (method === "POST" && contentType.startsWith("application/grpc")) return false;
  stream.receiver = new ForeignRequest(stream, method);
  return true;
}
