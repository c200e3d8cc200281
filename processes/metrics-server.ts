/** `/metrics` for Prometheus and `/healthz` for supervisors; on loopback by default. */
import { createServer, type Server } from "node:http";
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
