// Questions about images in a registry, to a stock manager and to ours: digests, platforms, logins, and services pinned by digest.
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import anyTest from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { ask } from "../fixtures/engine-api.ts";
import { startImageRegistry } from "../fixtures/image-registry.ts";
import { startManager } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";

const test = engineMissing() === null ? anyTest.serial : anyTest.serial.skip;
const run = promisify(execFile);

function auth(username: string, password: string): string {
  // With padding, without which a stock engine ignores the header.
  const text = Buffer.from(JSON.stringify({ username, password })).toString("base64");
  return text.replaceAll("+", "-").replaceAll("/", "_");
}

test("a manager asks registries as a stock manager does, and services are pinned by digest", async (t) => {
  const [engine, manager, registry] = await Promise.all([startEngine(t), startManager(t), startImageRegistry(t)]);
  const listen = `${engine.host}:${await freePort()}`;
  await engine.docker("swarm", "init", "--listen-addr", listen, "--advertise-addr", engine.host);
  await manager.ready();
  const [stock, ours] = [join(engine.dir, "docker.sock"), join(manager.dataDir, "docker.sock")];
  const look = async (socket: string, image: string, registryAuth = "") =>
    ask(socket, {
      method: "GET",
      path: `/v1.41/distribution/${image}/json`,
      ...(registryAuth === "" ? {} : { headers: { "x-registry-auth": registryAuth } }),
    });
  const { digests, host } = registry;
  for (const [image, registryAuth] of [
    [`${host}/app:1`, ""],
    [`${host}/a/b/app:many`, ""],
    [`${host}/app@${digests.list}`, ""],
    [`${host}/closed/app:1`, auth("ada", "secret")],
  ] as const) {
    const [expected, found] = [await look(stock, image, registryAuth), await look(ours, image, registryAuth)];
    t.is(expected.status, 200, expected.text);
    t.deepEqual(found, expected, image);
  }
  t.regex((await look(ours, `${host}/app:1`)).text, new RegExp(digests.manifest));
  for (const [image, registryAuth] of [
    [`${host}/app:absent`, ""],
    [`${host}/nothing:1`, ""],
    [`${host}/closed/app:1`, ""],
    [`${host}/App:1`, ""],
  ] as const) {
    const [expected, found] = [await look(stock, image, registryAuth), await look(ours, image, registryAuth)];
    t.true(expected.status >= 400, image);
    t.deepEqual(found, expected, image);
  }
  // A stock engine does not classify this error.
  t.is((await look(stock, `${host}/closed/app:1`, auth("ada", "wrong"))).status, 500);
  t.is((await look(ours, `${host}/closed/app:1`, auth("ada", "wrong"))).status, 401);
  t.is((await look(ours, "127.0.0.1:1/app:1")).status, 500, "nothing listens there");

  const logIn = async (socket: string, password: string) =>
    ask(socket, {
      method: "POST",
      path: "/v1.41/auth",
      body: JSON.stringify({ username: "ada", password, serveraddress: host }),
    });
  t.deepEqual(await logIn(ours, "secret"), await logIn(stock, "secret"));
  const [expected, found] = [await logIn(stock, "wrong"), await logIn(ours, "wrong")];
  t.deepEqual([found.status, expected.status], [401, expected.status], expected.text);

  for (const socket of [stock, ours]) {
    const create = ["-H", `unix://${socket}`, "service", "create", "-d", "--name", "pinned", `${host}/app:1`];
    const { stderr } = await run("docker", create);
    t.is(stderr, "");
    const format = ["--format", "{{.Spec.TaskTemplate.ContainerSpec.Image}}"];
    const { stdout } = await run("docker", ["-H", `unix://${socket}`, "service", "inspect", ...format, "pinned"]);
    t.is(stdout.trim(), `${host}/app:1@${digests.manifest}`);
  }
});
