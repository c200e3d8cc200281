// Docker's own command, pointed at a manager by mistake, prints a sentence that says what to use.
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import anyTest from "ava";
import { notDockerMessage } from "../../edges/grpc/http1.ts";
import { engineMissing } from "../fixtures/docker-engine.ts";
import { identityOf, temporaryFolder, world } from "../support/grpc-world.ts";

const test = engineMissing() === null ? anyTest : anyTest.skip;
const run = promisify(execFile);

test("docker with its host set to the control socket or to port 2377 prints what to use instead", async (t) => {
  const { server, port, root } = await world(t);
  const folder = temporaryFolder(t);
  const path = join(folder, "control.sock");
  await server.listenUnix(path);
  for (const host of [`unix://${path}`, `tcp://127.0.0.1:${port}`]) {
    for (const args of [["ps"], ["service", "ls"], ["node", "ls"]]) {
      const error = await t.throwsAsync(run("docker", ["--config", folder, "--host", host, ...args]));
      t.true(error.message.includes(`Error response from daemon: ${notDockerMessage}`), `${host}: ${error.message}`);
    }
  }
  const { certificatePem, keyPem } = await identityOf({ root });
  const tls = ["--tls"];
  for (const [flag, pem] of [
    ["tlscacert", root.certificatePem],
    ["tlscert", certificatePem],
    ["tlskey", keyPem],
  ] as const) {
    const file = join(folder, flag);
    writeFileSync(file, pem);
    tls.push(`--${flag}`, file);
  }
  const host = `tcp://127.0.0.1:${port}`;
  const error = await t.throwsAsync(run("docker", ["--config", folder, "--host", host, ...tls, "node", "ls"]));
  t.true(error.message.includes(notDockerMessage), error.message);
});
