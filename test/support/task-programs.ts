// Programs that tests run as tasks: arguments of `node -e`.

/** Answers on two ports with the caller's address, then echoes its input. */
export const server = `for (const port of [80, 81]) require("net").createServer((peer) => {
  peer.on("error", () => {});
  peer.write(peer.remoteAddress + "\\n");
  peer.pipe(peer);
}).listen(port, "0.0.0.0");`;

/** Prints the first line that it receives; fails after three seconds. */
export const client = `const [host, port] = process.argv.slice(1);
const peer = require("net").connect(Number(port), host);
setTimeout(() => process.exit(3), 3000);
peer.once("data", (data) => { process.stdout.write(data.toString().trim()); process.exit(0); });
peer.on("error", () => process.exit(2));`;
