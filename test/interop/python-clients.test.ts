// Stock Python clients of Juju read, watch and change a real cluster. Skipped where they are not installed.
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import anyTest from "ava";
import { modelUuid } from "../../edges/juju/model.ts";
import { createService, runningTasks, sleepers, status } from "../fixtures/control-client.ts";
import { startAgent, startManager, tempDir } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { until } from "../fixtures/until.ts";
import { pythonClientsMissing, pythonOf } from "../fixtures/python-clients.ts";
import { patient } from "../support/slowness.ts";

const test = pythonClientsMissing() === null ? anyTest.serial : anyTest.serial.skip;
const password = "correct horse";
const refused = /invalid entity name or password/;

test("Python clients of Juju 1, 2 and 3 log in, read, watch and change a cluster, and manage its users", async (t) => {
  t.timeout(patient(300_000));
  const port = String(await freePort());
  const manager = await startManager(t, { args: ["--json-listen", `127.0.0.1:${port}`] });
  await startAgent(t, manager);
  const dir = tempDir(t, "python");
  const [ca, secret] = [join(dir, "ca.pem"), join(dir, "password")];
  writeFileSync(ca, `${await manager.muster("ca")}\n`);
  writeFileSync(secret, `${password}\n`);
  await manager.muster("user", "add", "--role", "admin", "--password-file", secret, "ada");
  await createService(manager, sleepers("web", 2));
  const model = modelUuid((await status(manager)).clusterId);

  async function told(client: Parameters<typeof pythonOf>[0], program: string, ...args: readonly string[]) {
    const path = fileURLToPath(new URL(`../fixtures/${program}`, import.meta.url));
    const env = { ...process.env, HOME: dir, PYTHONDONTWRITEBYTECODE: "1", PYTHONWARNINGS: "ignore" };
    const { stdout } = await promisify(execFile)(pythonOf(client), [path, ...args], { env, timeout: 120_000 });
    const answers = JSON.parse(stdout) as Record<string, unknown>;
    t.regex(String(answers["refused"]), refused, client);
    return answers;
  }

  const look = await told("jujuclient", "jujuclient_client.py", "2", port, ca, "ada", password, model);
  t.deepEqual(look["status"], ["web"]);
  t.true((look["kinds"] as string[]).includes("application"));

  for (const [client, version] of [
    ["libjuju2", "2.9.31"],
    ["libjuju3", "3.5.2"],
  ] as const) {
    t.like(await told(client, "libjuju_client.py", port, ca, "ada", password), {
      models: 1,
      user: ["ben", "Ben B.", true],
      disabled: true,
      version,
      status: ["web"],
      watched: ["web"],
      units: ["web/0", "web/1", "web/2"],
      ran: ["hello\n", 0],
      config: "green",
      constraints: 64,
      modelConstraints: { mem: 96, tags: ["ssd"] },
      noConstraints: {},
    });
    await manager.muster("user", "rm", "ben");
    await manager.muster("service", "scale", "--detach", "web=2");
    await until("the third unit to be removed", async () => (await runningTasks(manager)).length === 2);
  }

  const old = await told("jujuclient", "jujuclient_client.py", "1", port, ca, "ada", password, model);
  t.deepEqual(old["status"], ["web"]);
  t.true((old["kinds"] as string[]).includes("service"));
  t.deepEqual(old["annotation"], { Annotations: { colour: "green" } });
});
