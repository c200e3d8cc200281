/**
 * HTTP/1 requests on a gRPC port: a Docker client whose `DOCKER_HOST` points at a manager sends them. Each is answered
 * like a Docker Engine answers an error, so that the client prints the sentence.
 */

/** The answer's message. Docker clients print it after "Error response from daemon: ". */
export const notDockerMessage =
  "this is the gRPC API of a Muster manager: point DOCKER_HOST at the manager's Engine API instead, " +
  "docker.sock in its data dir, or use the muster command (such as 'muster node ls')";

/**
 * Whether a connection starts with an HTTP/1 request line: a method and a path (RFC 9112 §3). The preface of HTTP/2 also
 * starts with a method, but followed by `*` instead of a path.
 */
export function isHttp1Request(head: Buffer): boolean {
  return /^[A-Z]{3,7} \//.test(head.toString("latin1", 0, 16));
}

/** The answer to the request that starts with `head`. Close the connection after it. */
export function http1Refusal(head: Buffer): Buffer {
  const body = `${JSON.stringify({ message: notDockerMessage })}\n`;
  const fields =
    "HTTP/1.1 400 Bad Request\r\n" +
    "Content-Type: application/json\r\n" +
    `Content-Length: ${Buffer.byteLength(body)}\r\n` +
    "Connection: close\r\n\r\n";
  // An answer to HEAD has no body (RFC 9110 §9.3.2).
  return Buffer.from(head.toString("latin1", 0, 5) === "HEAD " ? fields : fields + body);
}
