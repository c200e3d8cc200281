// The sample service of `npm start`: an HTTP server whose replicas share one port (SO_REUSEPORT), so that the kernel
// spreads connections over them and the service has one URL.
import { createServer } from "node:http";

const { PORT, TASK_ID, TASK_NAME, NODE_HOSTNAME } = process.env;

const server = createServer((_request, response) => {
  response.setHeader("connection", "close");
  response.setHeader("content-type", "text/plain");
  response.setHeader("x-task-id", TASK_ID ?? "");
  response.end(`hello from ${TASK_NAME} on ${NODE_HOSTNAME}\n`);
});
server.on("error", (error) => {
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
});
server.listen({ host: "127.0.0.1", port: Number(PORT), reusePort: true });
process.on("SIGTERM", () => server.close(() => process.exit(0)));
