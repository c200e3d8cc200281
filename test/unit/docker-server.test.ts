// Connections of Docker's Engine API.
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { createDockerServer } from "../../edges/docker/server.ts";

/** A client of a server without a manager, and what it has received. */
async function client(t: ExecutionContext) {
  const folder = mkdtempSync(join(tmpdir(), "muster-docker-server-"));
  const server = createDockerServer({ callsOf: () => ({}) } as unknown as Parameters<typeof createDockerServer>[0]);
  const path = join(folder, "docker.sock");
  await server.listenUnix(path, null);
  const socket = connect({ path });
  let text = "";
  socket.on("data", (data: Buffer) => (text += data.toString())).on("error", () => undefined);
  t.teardown(() => {
    socket.destroy();
    server.close();
    rmSync(folder, { recursive: true });
  });
  const answers = (): readonly string[] =>
    Array.from(text.matchAll(/^HTTP\/1\.1 (\d+) /gm), ([, status]) => status ?? "");
  const untilAnswers = async (count: number): Promise<void> => {
    while (answers().length < count && !socket.destroyed)
      await Promise.race([once(socket, "data"), once(socket, "close")]);
  };
  return { socket, answers, untilAnswers };
}

const leave = (bytes: number): string =>
  `POST /v1.41/swarm/leave HTTP/1.1\r\nHost: d\r\nContent-Length: ${bytes}\r\n\r\n`;

test("a client that gets an early answer may still send its body, and use the connection again", async (t) => {
  const { answers, socket, untilAnswers } = await client(t);
  socket.write(leave(100_000));
  await untilAnswers(1);
  socket.write(`${"x".repeat(100_000)}GET /v1.41/nonsense HTTP/1.1\r\nHost: d\r\n\r\n`);
  await untilAnswers(2);
  t.deepEqual(answers(), ["503", "404"]);
  t.false(socket.destroyed);
});

test("a longer body is not waited for", async (t) => {
  const { answers, socket } = await client(t);
  const closed = once(socket, "close");
  socket.write(leave(300_000));
  await closed;
  t.deepEqual(answers(), ["503"]);
});
