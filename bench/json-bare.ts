/**
 * The cost of connections without the JSON API: Node's TLS sockets alone (`tls`), or with the package `ws` on top (`ws`), with
 * the options of our port. Argument: which one. Prints its port; for each line on its standard input one line: its `Memory`
 * after a collection. Each message is a number, and is answered with as many bytes.
 */
import { createServer as createHttpsServer } from "node:https";
import { createServer } from "node:tls";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";
import { WebSocketServer } from "ws";
import { secureContext } from "../edges/juju/secure-context.ts";
import { createLocalIdentity } from "../lib/pki/index.ts";
import { memoryNow } from "./json-load.ts";

const { certificatePem, keyPem } = await createLocalIdentity(Date.now());
const options = {
  ...secureContext({ certificatePem, keyPem, acceptedPem: certificatePem }),
  requestCert: true,
  rejectUnauthorized: false,
  noDelay: true,
};
const answerTo = (message: Buffer): Buffer => Buffer.alloc(Number(message.toString()), "x");
const server =
  process.argv[2] === "tls"
    ? createServer(options, (socket) =>
        socket.on("error", () => undefined).on("data", (data) => socket.write(answerTo(data))),
      )
    : createHttpsServer(options);
if (process.argv[2] !== "tls") {
  new WebSocketServer({ server: server as ReturnType<typeof createHttpsServer>, perMessageDeflate: false }).on(
    "connection",
    (socket) =>
      socket
        .on("error", () => undefined)
        .on("message", (data) => socket.send(answerTo(data as Buffer), { binary: false })),
  );
}
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
process.stdout.write(`${(server.address() as AddressInfo).port}\n`);
for await (const _ of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await memoryNow())}\n`);
}
process.exit(0);
