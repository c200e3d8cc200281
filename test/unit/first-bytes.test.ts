// Connections are handed over when they have sent something, and closed when they do not.
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import test, { type ExecutionContext } from "ava";
import { FirstBytes } from "../../edges/grpc/first-bytes.ts";

async function listening(t: ExecutionContext, timeoutMs: number) {
  const spoken: { socket: Socket; head: Buffer }[] = [];
  let heard = (): void => {};
  const someoneSpoke = new Promise<void>((resolve) => (heard = resolve));
  const firstBytes = new FirstBytes<Socket>(timeoutMs, (socket, head) => {
    spoken.push({ socket, head });
    heard();
  });
  const server = createServer((socket) => firstBytes.await(socket)).listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1").on("error", () => {});
  await once(client, "connect");
  t.teardown(() => {
    client.destroy();
    for (const { socket } of spoken) socket.destroy();
    firstBytes.close();
    server.close();
  });
  return { client, firstBytes, server, spoken, someoneSpoke };
}

test("a connection is handed over once, with all of its bytes still to be read", async (t) => {
  const { client, firstBytes, spoken, someoneSpoke } = await listening(t, 60_000);
  client.write("hello");
  await someoneSpoke;
  t.is(spoken[0]?.head.toString("latin1"), "hello");
  firstBytes.close();
  const { socket } = spoken[0] as { socket: Socket };
  client.end(" there");
  t.is((await socket.setEncoding("latin1").toArray()).join(""), "hello there");
  t.is(spoken.length, 1);
});

test("a silent connection is closed after a while", async (t) => {
  const { client, spoken } = await listening(t, 50);
  await once(client.resume(), "close");
  t.deepEqual(spoken, []);
});

test("a silent connection is closed with the listener", async (t) => {
  const { client, firstBytes, server, spoken } = await listening(t, 60_000);
  // The server may see the connection later than its client.
  if ((await connections(server)) === 0) await once(server, "connection");
  firstBytes.close();
  await once(client.resume(), "close");
  t.deepEqual(spoken, []);
});

function connections(server: ReturnType<typeof createServer>): Promise<number> {
  return new Promise((resolve, reject) =>
    server.getConnections((error, count) => (error === null ? resolve(count) : reject(error))),
  );
}
