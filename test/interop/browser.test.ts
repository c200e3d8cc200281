// The JSON API from a page in a browser: unmodified Chromium.
import { createServer, type Server } from "node:http";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import anyTest from "ava";
import { browserMissing, startBrowser } from "../fixtures/browser.ts";
import { createService, sleepers } from "../fixtures/control-client.ts";
import { startManager, tempDir } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { patient } from "../support/slowness.ts";

const missing = browserMissing();
const test = missing === null ? anyTest.serial : anyTest.serial.skip;
const password = "correct horse";

/** In the page: logs in there and returns the applications from the status, or how the connection ended. */
const client = `
  globalThis.lookAt = (url) => new Promise((resolve, reject) => {
    const socket = new WebSocket(url);
    let isOpen = false;
    const ask = (requestId, type, version, request, params) =>
      socket.send(JSON.stringify({ "request-id": requestId, type, version, request, params }));
    socket.onopen = () => {
      isOpen = true;
      ask(1, "Admin", 3, "Login", { "auth-tag": "user-ada", credentials: ${JSON.stringify(password)} });
    };
    socket.onclose = ({ code }) => resolve(isOpen ? "closed with " + code : "never opened");
    socket.onmessage = ({ data }) => {
      const reply = JSON.parse(data);
      if (reply.error) return reject(new Error(reply.error));
      if (reply["request-id"] === 1) return ask(2, "Client", 6, "FullStatus", {});
      resolve(Object.keys(reply.response.applications));
      socket.close();
    };
  })`;

async function served(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return (server.address() as { port: number }).port;
}

test("an allowed page and one of the manager's own origin read the status; a page of another origin cannot", async (t) => {
  t.timeout(patient(300_000));
  const pages = createServer((_request, response) => {
    response.writeHead(200, { "content-type": "text/html" }).end(`<!doctype html><script>${client}</script>`);
  });
  const pagePort = await served(pages);
  t.teardown(() => {
    pages.close();
    pages.closeAllConnections();
  });
  const port = await freePort();
  const allowed = `http://127.0.0.1:${pagePort}`;
  const manager = await startManager(t, {
    args: ["--json-listen", `127.0.0.1:${port}`, "--json-origin", allowed],
  });
  const secret = join(tempDir(t, "json"), "password");
  writeFileSync(secret, `${password}\n`);
  const [root] = await Promise.all([
    manager.muster("ca"),
    manager.muster("user", "add", "--role", "read-only", "--password-file", secret, "ada"),
    createService(manager, sleepers("web", 2)),
  ]);
  const browser = await startBrowser(t, root);
  const look = `lookAt("wss://localhost:${port}/")`;

  const page = await browser.open(`${allowed}/`);
  t.deepEqual(await page.evaluate(look), ["web"]);
  const foreign = await browser.open(`http://localhost:${pagePort}/`);
  t.is(await foreign.evaluate(look), "never opened");
  const own = await browser.open(`https://localhost:${port}/`);
  await own.evaluate(client);
  t.deepEqual(await own.evaluate(look), ["web"]);
});
