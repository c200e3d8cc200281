// The JSON API of a real manager: the clients printed in docs/json-api.md, a stock one, the history of who did what; and
// requests to running tasks over it.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { WebSocket } from "ws";
import { createService, sleepers } from "../fixtures/control-client.ts";
import { startAgent, startManager, tempDir } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { until } from "../fixtures/until.ts";
import { password, TestClient, type Reply } from "../support/json-api.ts";
import { patient } from "../support/slowness.ts";

const page = readFileSync(new URL("../../docs/json-api.md", import.meta.url), "utf8");

/** The page's code block in that language. */
function blockOf(language: string): string {
  const [, block] = new RegExp(`\`\`\`${language}\n([\\s\\S]*?)\`\`\``).exec(page) ?? [];
  if (block === undefined) throw new Error(`docs/json-api.md has no client in ${language}`);
  return block;
}

/** The client's output as it grows; the client ends with the test. */
function started(command: string, args: readonly string[], env: Record<string, string> = {}) {
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"], env: { ...process.env, ...env } });
  const output = { text: "" };
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk: Buffer) => void (output.text += chunk.toString()));
  child.stdin.end(`${password}\n`);
  return { child, output };
}

test.serial(
  "the page's clients and a stock client log in, read and watch; the history has the user's name",
  async (t) => {
    t.timeout(patient(300_000));
    const port = await freePort();
    const manager = await startManager(t, { args: ["--json-listen", `127.0.0.1:${port}`] });
    const dir = tempDir(t, "json");
    const [ca, secret] = [join(dir, "ca.pem"), join(dir, "password")];
    writeFileSync(secret, `${password}\n`);
    // Processes start side by side: on a busy machine each takes seconds.
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
    await until("the service in the TypeScript client's output", () =>
      /application change web\b/.test(watching.output.text),
    );
    await createService(manager, sleepers("later", 1));
    await until("the change in the TypeScript client's output", () =>
      /application change later\b/.test(watching.output.text),
    );

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

/** Sends a running task's requests, one after the other. */
async function asker(port: number, ca: string) {
  const client = new TestClient(new WebSocket(`wss://localhost:${port}/`, { ca }));
  await once(client.socket, "open");
  const { error } = await client.login();
  if (error !== undefined) throw new Error(JSON.stringify(error));
  let last = 1;
  const ask = async (type: string, request: string, params: object, id = ""): Promise<Reply> => {
    const { error: refused, response } = await client.ask({
      "request-id": (last += 1),
      type,
      version: 1,
      request,
      id,
      params,
    });
    if (refused !== undefined) throw new Error(JSON.stringify(refused));
    return response as Reply;
  };
  return { client, ask };
}

test.serial(
  "a unit's output is followed, inspected, planned with and signalled, and its history shows it",
  async (t) => {
    t.timeout(patient(300_000));
    const port = await freePort();
    const manager = await startManager(t, { args: ["--json-listen", `127.0.0.1:${port}`] });
    const secret = join(tempDir(t, "json"), "password");
    writeFileSync(secret, `${password}\n`);
    const script = 'trap "echo caught" HUP; i=0; while :; do i=$((i+1)); echo "line $i"; sleep 0.2; done';
    const [root] = await Promise.all([
      manager.muster("ca"),
      manager.muster("user", "add", "--role", "operator", "--password-file", secret, "ada"),
      startAgent(t, manager, { hostname: "one" }),
      manager.muster("service", "create", "-d", "--name", "talk", "--driver", "exec", "sh", "-c", script),
    ]);
    const { client, ask } = await asker(port, root);
    t.teardown(() => client.socket.terminate());
    const application = "talk";

    const watched = await until("the unit", () => ask("Muster", "WatchLogs", { applications: [application] }));
    const lines: string[] = [];
    const follow = async (wanted: RegExp): Promise<void> => {
      while (!lines.some((line) => wanted.test(line))) {
        const next = await ask("LogsWatcher", "Next", {}, String(watched["watcher-id"]));
        lines.push(...(next["lines"] as readonly { readonly text: string }[]).map(({ text }) => text.trimEnd()));
      }
    };
    await follow(/^line 5$/);

    const stats = await ask("Muster", "Stats", { unit: "talk/0" });
    t.true(Number(stats["memory-bytes"]) > 0, JSON.stringify(stats));
    t.like(await ask("Muster", "Plan", { application, scale: 3 }), { name: "talk", created: 2, kept: 1, removed: 0 });
    t.like(await ask("Muster", "PlanDeploy", { application: "new", "charm-url": "bb:1", "num-units": 2 }), {
      created: 2,
    });
    t.like(await ask("Muster", "PlanRebalance", { all: true }), { moves: [] });

    await ask("Muster", "Signal", { unit: "talk/0", signal: "HUP" });
    await follow(/^caught$/);
    const numbers = lines.filter((line) => line.startsWith("line ")).map((line) => Number(line.slice(5)));
    t.deepEqual(
      numbers,
      numbers.map((_, at) => at + 1),
      "every line, each once, in order",
    );
    t.deepEqual(await ask("LogsWatcher", "Stop", {}, String(watched["watcher-id"])), {});
    await until("the sender's name", async () =>
      /asked by user-ada from 127\.0\.0\.1 with Muster\.Signal SIGHUP/.test(
        await manager.muster("history", "task", "talk.1"),
      ),
    );
  },
);
