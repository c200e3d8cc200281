// A stock client of Juju watches a real cluster through scaling, the loss of a node, and removal.
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { createService, nodeCalled, sleepers } from "../fixtures/control-client.ts";
import { startAgent, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { endProcessesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { machineId } from "../../edges/juju/entities/names.ts";
import { patient } from "../support/slowness.ts";

const password = "correct horse";
const program = fileURLToPath(new URL("../fixtures/jujulib-old-client.ts", import.meta.url));

interface Line {
  readonly deltas?: readonly (readonly [string, string, Record<string, unknown>])[];
  readonly refused?: string | null;
  readonly loggedIn?: boolean;
  readonly pinged?: boolean;
  readonly status?: { readonly applications: Record<string, { readonly units: object }> };
  readonly problem?: string | null;
  readonly stopped?: string | null;
}

/** The states reported for an entity, one word each: `allocating/waiting`, `idle/active`, … */
function wordsOf(lines: readonly Line[], kind: string, key: string, id: string): readonly string[] {
  return lines
    .flatMap(({ deltas }) => deltas ?? [])
    .filter(([of, , entity]) => of === kind && entity[key] === id)
    .map(([, action, entity]) => {
      if (action === "remove") return "removed";
      const current = (name: string): string => (entity[name] as { current: string } | undefined)?.current ?? "";
      return kind === "unit" ? `${current("agent-status")}/${current("workload-status")}` : current("agent-status");
    });
}

async function watchingClient(t: ExecutionContext, manager: TestManager, port: number) {
  const dir = tempDir(t, "json");
  const [ca, secret] = [join(dir, "ca.pem"), join(dir, "password")];
  writeFileSync(ca, `${await manager.muster("ca")}\n`);
  writeFileSync(secret, `${password}\n`);
  await manager.muster("user", "add", "--role", "operator", "--password-file", secret, "ada");
  const child = spawn(process.execPath, [program, `wss://localhost:${port}`, "ada", password], {
    env: { ...process.env, NODE_EXTRA_CA_CERTS: ca },
  });
  t.teardown(() => void child.kill());
  let text = "";
  child.stdout.on("data", (chunk: Buffer) => void (text += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => t.log(chunk.toString()));
  const lines = (): Line[] =>
    text
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Line);
  return { child, lines };
}

test.serial(
  "a client of Juju 2 sees units start, a node die, units move elsewhere, and everything removed",
  async (t) => {
    t.timeout(patient(300_000));
    const port = await freePort();
    const manager = await startManager(t, { args: ["--json-listen", `127.0.0.1:${port}`] });
    const lost = await startAgent(t, manager, { hostname: "lost" });
    await startAgent(t, manager, { hostname: "kept" });
    await createService(manager, sleepers("web", 2));
    const { child, lines } = await watchingClient(t, manager, port);
    const unit = (number: number): readonly string[] => wordsOf(lines(), "unit", "name", `web/${number}`);

    await until("two running units", () => [0, 1].every((number) => unit(number).at(-1) === "idle/active"));
    t.like(lines()[0], { refused: "invalid entity name or password" });
    t.true(lines().some(({ loggedIn }) => loggedIn === true));
    t.true(lines().some(({ pinged }) => pinged === true));
    const { status } = lines().find((line) => line.status !== undefined) ?? {};
    t.deepEqual(Object.keys(status?.applications ?? {}), ["web"]);

    await manager.muster("service", "scale", "--detach", "web=4");
    await until("four running units", () => [2, 3].every((number) => unit(number).at(-1) === "idle/active"));
    for (const number of [2, 3]) t.is(unit(number)[0], "allocating/waiting", "it is seen before it runs");

    const machine = machineId((await nodeCalled(manager, "lost")).id);
    await lost.process.end("SIGKILL");
    await endProcessesOf(lost.dataDir);
    await until("the machine to be down", () => wordsOf(lines(), "machine", "id", machine).at(-1) === "down");
    await until("all units to run elsewhere", () =>
      [0, 1, 2, 3].every((number) => {
        const told = lines().flatMap(({ deltas }) => deltas ?? []);
        const last = told.findLast(([kind, , entity]) => kind === "unit" && entity["name"] === `web/${number}`);
        return unit(number).at(-1) === "idle/active" && last?.[2]["machine-id"] !== machine;
      }),
    );

    // Nobody can stop the units left on the machine that is down: they stay until the machine is removed.
    await manager.muster("service", "rm", "web");
    await manager.muster("node", "rm", "--force", "lost");
    await until("everything to be removed", () => [0, 1, 2, 3].every((number) => unit(number).at(-1) === "removed"));
    await until("the machine to be removed", () => wordsOf(lines(), "machine", "id", machine).at(-1) === "removed");
    child.stdin.end();
    await until("the watcher to end", () => lines().some(({ stopped }) => stopped === null));
    // The second error if the Next arrived after the Stop.
    const refusals: readonly unknown[] = ["watcher was stopped", "unknown watcher id"];
    await until("its refusal", () => lines().some(({ problem }) => refusals.includes(problem)));
  },
);
