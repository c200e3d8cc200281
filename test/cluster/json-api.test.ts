// The JSON API of a real manager: the clients of docs/json-api.md as they stand there, a stock one, and who did it.
import { execFile, spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { createService, sleepers } from "../fixtures/control-client.ts";
import { freePort, startManager, tempDir } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";

const page = readFileSync(new URL("../../docs/json-api.md", import.meta.url), "utf8");
const password = "correct horse";

/** The block of that language. */
function blockOf(language: string): string {
  const [, block] = new RegExp(`\`\`\`${language}\n([\\s\\S]*?)\`\`\``).exec(page) ?? [];
  if (block === undefined) throw new Error(`docs/json-api.md has no client in ${language}`);
  return block;
}

/** The client's output, as it grows; it is ended with the test. */
function started(command: string, args: readonly string[], env: Record<string, string> = {}) {
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"], env: { ...process.env, ...env } });
  const output = { text: "" };
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk: Buffer) => void (output.text += chunk.toString()));
  child.stdin.end(`${password}\n`);
  return { child, output };
}

test.serial(
  "clients of the page and a stock client log in, look and watch; the history has the user's name",
  async (t) => {
    t.timeout(170_000);
    const port = await freePort();
    const manager = await startManager(t, { args: ["--json-listen", `127.0.0.1:${port}`] });
    const dir = tempDir(t, "json");
    const [ca, secret] = [join(dir, "ca.pem"), join(dir, "password")];
    writeFileSync(secret, `${password}\n`);
    // What starts a process is done beside the others: on a busy machine each takes seconds.
    const [root] = await Promise.all([
      manager.muster("ca"),
      manager.muster("user", "add", "--role", "operator", "--password-file", secret, "ada"),
      createService(manager, sleepers("web", 2)),
    ]);
    writeFileSync(ca, `${root}\n`);

    const [client, python] = [join(dir, "client.ts"), join(dir, "client.py")];
    writeFileSync(client, blockOf("ts"));
    writeFileSync(python, blockOf("python"));
    t.true(blockOf("ts").trim().split("\n").length <= 35 && blockOf("python").trim().split("\n").length <= 12);

    const watching = started(process.execPath, [client, `wss://localhost:${port}/`, "ada"], {
      NODE_EXTRA_CA_CERTS: ca,
    });
    t.teardown(() => void watching.child.kill());
    const looking = started("python3", [python, String(port), ca, "ada"]);
    const stock = fileURLToPath(new URL("../fixtures/jujulib-client.ts", import.meta.url));
    const stockRan = promisify(execFile)(process.execPath, [stock, `wss://localhost:${port}`, "ada", password], {
      env: { ...process.env, NODE_EXTRA_CA_CERTS: ca },
    });
    await until("the service, by the TypeScript client", () => /application change web\b/.test(watching.output.text));
    await createService(manager, sleepers("later", 1));
    await until("the change, by the TypeScript client", () => /application change later\b/.test(watching.output.text));

    const status = await until("the answer to the Python client", () => {
      try {
        return JSON.parse(looking.output.text) as { Services: Record<string, { Units: object }> };
      } catch (error) {
        throw new Error(looking.output.text, { cause: error });
      }
    });
    t.true("web" in status.Services);
    const { stdout: ran } = await stockRan;
    const told = JSON.parse(ran) as Record<string, unknown>;
    t.like(told, {
      refused: "Have you been granted permission to a model on this controller?",
      identity: "user-ada",
      stopped: "watcher was stopped",
      version: "3.5.2",
      scaled: { results: [{ info: { "num-units": 3 } }] },
    });
    t.true((told["applications"] as string[]).includes("web"));
    t.true((told["kinds"] as string[]).includes("application"));
    t.regex(
      await manager.muster("history", "service", "web"),
      /user-ada from 127\.0\.0\.1 with Application\.ScaleApplications/,
    );
  },
);
