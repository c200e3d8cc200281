// Docker's Engine API: the same requests to a stock manager and to ours, in turn; status, type and text must be equal.
import { join } from "node:path";
import anyTest, { type ExecutionContext } from "ava";
import { isOlder } from "../../edges/docker/api-version.ts";
import { engineMissing, startEngine, type DockerEngine } from "../fixtures/docker-engine.ts";
import { ask } from "../fixtures/engine-api.ts";
import { startManager, type TestManager } from "../fixtures/muster.ts";
import { wrongRequests, type EngineRequest } from "../support/docker-requests.ts";

const test = engineMissing() === null ? anyTest.serial : anyTest.serial.skip;

interface Pair {
  readonly stock: string;
  readonly ours: string;
  readonly engine: DockerEngine;
  readonly manager: TestManager;
}

async function pair(t: ExecutionContext): Promise<Pair> {
  const [engine, manager] = await Promise.all([startEngine(t), startManager(t)]);
  await engine.docker("swarm", "init", "--listen-addr", `${engine.host}:2399`, "--advertise-addr", engine.host);
  await manager.ready();
  return { engine, manager, stock: join(engine.dir, "docker.sock"), ours: join(manager.dataDir, "docker.sock") };
}

const known: readonly EngineRequest[] = [
  ["/services/create", { Name: "known", TaskTemplate: { ContainerSpec: { Image: "absent:1" } } }],
  ["/secrets/create", { Name: "known", Data: "YQ==" }],
  ["/configs/create", { Name: "known", Data: "YQ==" }],
  ["/networks/create", { Name: "known", Driver: "overlay" }],
].map(([path, body]) => ({ method: "POST", path: `/v1.41${path as string}`, body: JSON.stringify(body) }));

/** Newer versions of Go name the embedded struct of a field, and Docker has renamed one struct: no version of the API tells. */
function inWordsOfOldGo(text: string): string {
  return text
    .replace(/(\.)Annotations\.(Name|Labels) of type/, "$1$2 of type")
    .replace(" HealthcheckConfig.", " HealthConfig.");
}

/** Go 1.27 describes mistakes in JSON in other words. Docker builds its engines with older ones, whose words are ours; Debian does not. */
const ofDecoder = /(?:json: )?(?:cannot unmarshal|illegal base64|invalid (?:character|escape)) .*(?="\})/;

test("wrong requests get a stock manager's status and message", async (t) => {
  const { stock, ours } = await pair(t);
  for (const request of known)
    for (const socket of [stock, ours]) t.is((await ask(socket, request)).status, 201, request.path);
  t.true(wrongRequests.length >= 200);
  const { ApiVersion, GoVersion } = JSON.parse((await ask(stock, { method: "GET", path: "/version" })).text) as {
    ApiVersion: string;
    GoVersion: string;
  };
  const hasOldDecoder = isOlder(GoVersion.replace(/^go/, ""), "1.27");
  const compared = (text: string): string => (hasOldDecoder ? text : text.replace(ofDecoder, "a mistake in JSON"));
  const different: string[] = [];
  for (const { path, ...rest } of wrongRequests.filter(
    ({ since }) => since === undefined || !isOlder(ApiVersion, since),
  )) {
    // In the newest version of the engine, which decides the words.
    const request = { ...rest, path: path.replace(/^\/v1\.41\//, `/v${ApiVersion}/`) };
    const [told, given] = [await ask(stock, request), await ask(ours, request)];
    const answer = { ...given, text: compared(given.text) };
    const expected = { ...told, text: compared(inWordsOfOldGo(told.text)) };
    const { ours: meant } = request;
    const isAsMeant =
      meant === undefined
        ? expected.status >= 400 && JSON.stringify(expected) === JSON.stringify(answer)
        : (!hasOldDecoder || JSON.stringify(expected) !== JSON.stringify(answer)) &&
          answer.status === meant.status &&
          meant.text.test(answer.text);
    if (isAsMeant) continue;
    different.push(
      `${request.method} ${request.path} ${request.body ?? ""}`,
      `  stock: ${expected.status} ${expected.contentType} ${expected.text.trim()}`,
      `  ours:  ${answer.status} ${answer.contentType} ${answer.text.trim()}`,
    );
  }
  t.deepEqual(different, []);
});
