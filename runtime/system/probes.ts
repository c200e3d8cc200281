/** Health probes over real sockets: one connection each, none reused. */
import { Agent, request, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import type { ProbeOutcome, Probes } from "../ports/probes.ts";

/** Bytes read of a failed response: as much as Docker keeps of a check's output. */
const bodyBytesMax = 4_096;
/** Limit of the response's headers: Node's default. */
const headerBytesMax = 16_384;

const passed: ProbeOutcome = { kind: "passed" };

function failed(reason: string): ProbeOutcome {
  return { kind: "failed", reason };
}

function errorText(error: Error & { readonly code?: string }): string {
  switch (error.code) {
    case "ECONNREFUSED":
      return "connection refused";
    case "ECONNRESET":
      return "the connection was reset";
    default:
      return error.message;
  }
}

/** The beginning of a response's body. */
function bodyOf(answer: IncomingMessage): Promise<string> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    let size = 0;
    const end = (): void => resolve(Buffer.concat(parts).subarray(0, bodyBytesMax).toString("utf8"));
    answer.on("data", (part: Buffer) => {
      parts.push(part);
      if ((size += part.length) >= bodyBytesMax) end();
    });
    // Also for an aborted response: its beginning says more than the way it ended.
    answer.once("close", end);
    answer.once("error", end);
  });
}

export const systemProbes: Probes = {
  http: ({ address, host, path, port }, signal) =>
    new Promise((resolve) => {
      const question = request({
        host: address,
        port,
        path,
        method: "GET",
        headers: { "User-Agent": "muster-health", Connection: "close", ...(host === "" ? {} : { Host: host }) },
        agent: new Agent({ keepAlive: false }),
        maxHeaderSize: headerBytesMax,
        signal,
      });
      question.once("response", (answer) => {
        const status = answer.statusCode ?? 0;
        const settle = (outcome: ProbeOutcome): void => {
          resolve(outcome);
          answer.destroy();
        };
        if (status >= 200 && status < 400) settle(passed);
        else void bodyOf(answer).then((body) => settle(failed(`answered ${status}${body === "" ? "" : `: ${body}`}`)));
      });
      // Once there is an outcome, the errors of a request that was cancelled on purpose are ignored.
      question.on("error", (error) => resolve(failed(errorText(error))));
      question.end();
    }),

  tcp: ({ address, port }, signal) =>
    new Promise((resolve) => {
      const socket = connect({ host: address, port, signal });
      socket.once("connect", () => {
        resolve(passed);
        socket.destroy();
      });
      socket.on("error", (error) => resolve(failed(errorText(error))));
    }),
};
