/** `/metrics` for Prometheus, `/healthz` for supervisors, and `/debug/collections` to find what grows. */
import { createServer, type Server, type ServerResponse } from "node:http";
import { collectionGroups } from "../runtime/telemetry/collections.ts";
import type { PrometheusMetrics } from "../runtime/telemetry/metrics.ts";
import { UserError } from "../lib/user-error.ts";
import { formatHostPort, type HostPort } from "./addresses.ts";

/** `unhealthy`: the reason for which `/healthz` answers 503; null for 200. */
export async function serveMetrics(
  listen: HostPort,
  metrics: PrometheusMetrics,
  unhealthy: () => string | null,
): Promise<Server> {
  metrics.watchProcess();
  const server = createServer((request, response) => {
    if (request.url === "/metrics") {
      metrics.expose().then(
        ({ text, contentType }) => response.writeHead(200, { "content-type": contentType }).end(text),
        (error: Error) => response.writeHead(500).end(error.message),
      );
    } else if (request.url === "/debug/collections") {
      if (isLoopback(request.socket.remoteAddress ?? "")) void answerCollections(response);
      else response.writeHead(403).end("only for callers on this machine: counting pauses the process\n");
    } else if (request.url === "/healthz") {
      const reason = unhealthy();
      response.writeHead(reason === null ? 200 : 503, { "content-type": "text/plain" }).end(`${reason ?? "ok"}\n`);
    } else {
      response.writeHead(404).end();
    }
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(listen.port, listen.host, resolve);
  }).catch((error: Error) => {
    throw new UserError(
      `cannot serve metrics at ${formatHostPort(listen)} (${error.message}): choose another with --metrics`,
    );
  });
  server.unref();
  return server;
}

function isLoopback(address: string): boolean {
  return address === "::1" || /^(?:::ffff:)?127\./.test(address);
}

async function answerCollections(response: ServerResponse): Promise<void> {
  try {
    const groups = await collectionGroups();
    response.writeHead(200, { "content-type": "application/json" }).end(`${JSON.stringify(groups)}\n`);
  } catch (error) {
    response.writeHead(500).end(`${(error as Error).message}\n`);
  }
}
