// Connections of gRPC's clients.
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { openChannel } from "../../edges/grpc/client-channel.ts";

test("a pause of the client's own process is not the server's silence", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "muster-channel-"));
  const path = join(folder, "socket");
  const server = createServer((socket) => socket.on("error", () => undefined));
  await new Promise<void>((resolve) => server.listen(path, resolve));
  t.teardown(() => {
    server.close();
    rmSync(folder, { recursive: true });
  });
  const requests = { scheme: "http", authority: "localhost", caller: "" };
  const opening = openChannel(connect({ path }), "connect", path, requests, 20);
  const until = performance.now() + 100;
  while (performance.now() < until);
  (await opening).close();
  t.pass();
});
