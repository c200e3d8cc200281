/**
 * The output collector's process (collector.ts). The agent starts it; it outlives the agent, and exits when there is neither an
 * agent nor a pipe. `main.ts SOCKET`: path of its socket (messages.ts).
 */
import { rmSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { Collector } from "./collector.ts";
import { lines, type OutputAnswer, type OutputQuestion } from "./messages.ts";

/** Long enough for the agent that has just started it, or is restarting. */
const idleMs = 3_000;

const [path] = process.argv.slice(2);
if (path === undefined) throw new Error("usage: main.ts SOCKET");
// The agent that started it may exit, by whatever signal its terminal sends.
for (const signal of ["SIGINT", "SIGHUP", "SIGTERM"] as const) process.on(signal, () => {});

const collector = new Collector();
const connections = new Set<Socket>();

async function carryOut(question: OutputQuestion): Promise<void> {
  switch (question.kind) {
    case "open":
      return collector.open(question.output);
    case "drain":
      return collector.drain(question.taskId, question.timeoutMs);
    case "leave":
      if (connections.size === 1 && collector.size === 0) end();
  }
}

const server = createServer((socket) => {
  connections.add(socket);
  socket.once("close", () => {
    connections.delete(socket);
    endIfIdle();
  });
  socket.on("error", () => socket.destroy());
  lines(socket, (line) => {
    const question = JSON.parse(line) as OutputQuestion;
    const answer = (error: string | null): void => {
      socket.write(`${JSON.stringify({ id: question.id, error } satisfies OutputAnswer)}\n`);
      endIfIdle();
    };
    carryOut(question).then(
      () => answer(null),
      (error: unknown) => answer(error instanceof Error ? error.message : String(error)),
    );
  });
});

let timer: NodeJS.Timeout | null = null;

function endIfIdle(): void {
  if (timer !== null) clearTimeout(timer);
  timer = null;
  if (connections.size > 0 || collector.size > 0) return;
  timer = setTimeout(end, idleMs);
}

function end(): never {
  collector.close();
  server.close();
  rmSync(path as string, { force: true });
  process.exit(0);
}

rmSync(path, { force: true });
server.listen(path, () => {
  process.stdout.write("ready\n");
  endIfIdle();
});
