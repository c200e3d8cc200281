// Secrets and configs of processes on our own agents: kept in memory, expanded from templates, surviving an agent's crash, and
// removed at the end.
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { startAgent, startManager, tempDir } from "../fixtures/muster.ts";
import { running, tasksOf } from "../fixtures/swarm.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

/** Where agents keep files in memory (linux/task-home/memory-files.ts), for this user. */
const roots = ["/run/muster-files", `/dev/shm/muster-files-${process.getuid?.() ?? 0}`];

/** Empty for a missing directory: other users' come and go meanwhile. */
function entries(directory: string): readonly string[] {
  try {
    return readdirSync(directory).map((name) => join(directory, name));
  } catch {
    return [];
  }
}

/** Directories of tasks with files in memory, of any user. */
function kept(): readonly string[] {
  return roots.flatMap(entries).flatMap(entries);
}

function isKept(taskId: string): boolean {
  return kept().some((path) => path.endsWith(`/${taskId}`));
}

test.serial(
  "a process has its secrets and configs, keeps them over its agent's crash, gets new ones in an update, and leaves none behind",
  async (t) => {
    t.timeout(patient(300_000));
    const manager = await startManager(t);
    const agent = await startAgent(t, manager, { hostname: "one" });
    const muster = (...parts: readonly (readonly string[])[]) => manager.muster(...parts.flat());
    const folder = tempDir(t, "contents");
    const file = (name: string, text: string | Uint8Array): string => {
      const path = join(folder, name);
      writeFileSync(path, text);
      return path;
    };
    const output = (id: string): string => readFileSync(join(agent.dataDir, "allocs", id, "output", "stdout"), "utf8");
    const oneTask = () =>
      until("one task", async () => {
        const found = await running(manager, "web");
        return found.length === 1 ? (found[0] ?? null) : null;
      });
    const template =
      '{{.Service.Name}} {{.Service.Labels.tier}} {{.Task.Slot}} {{.Node.Hostname}} {{env "COLOUR"}} {{secret "password"}}';
    await manager.muster("secret", "create", "password-1", file("p1", "canary-one"));
    await manager.muster("secret", "create", "password-2", file("p2", "canary-two"));
    await manager.muster("config", "create", "--template-driver=golang", "app", file("app", template));
    const script = 'while :; do echo "$(cat "$MUSTER_CONFIGS/etc/app.conf")"; sleep 0.1; done';
    await muster(
      ["service", "create", "--driver=exec", "--name=web", "--label=tier=front", "--env=COLOUR=green-{{.Task.Slot}}"],
      ["--secret=source=password-1,target=password,mode=0400", "--config=source=app,target=/etc/app.conf"],
      ["--stop-grace-period=100ms", "--update-monitor=1s", "--", "sh", "-c", script],
    );
    const first = await oneTask();
    const line = (password: string): string => `web front 1 one green-1 ${password}\n`;
    await until("its output", () => output(first.id).startsWith(line("canary-one")));
    t.true(isKept(first.id));

    // The agent dies; the process continues reading; the next agent finds both.
    agent.process.child.kill("SIGKILL");
    await until("the agent to exit", () => !agent.process.isRunning);
    const before = output(first.id).length;
    agent.process.start();
    await until("more output", () => output(first.id).length > before + 40);
    t.true(isKept(first.id));

    await t.throwsAsync(manager.muster("secret", "rm", "password-1"), {
      message: /in use by the following service: web/,
    });
    await manager.muster(
      "service",
      "update",
      "--secret-rm=password-1",
      "--secret-add=source=password-2,target=password",
      "web",
    );
    const second = await oneTask();
    t.not(second.id, first.id);
    await until("the other secret to appear", () => output(second.id).startsWith(line("canary-two")));
    t.false(isKept(first.id), "removed with its process");
    await manager.muster("secret", "rm", "password-1");

    // A template that cannot be expanded rejects the task with a reason.
    await manager.muster("config", "create", "--template-driver=golang", "wrong", file("wrong", '{{secret "nobody"}}'));
    await manager.muster(
      "config",
      "create",
      "--template-driver=golang",
      "binary",
      file("binary", Uint8Array.from([0xff])),
    );
    for (const [name, reason] of [
      [
        "wrong",
        /^exec: the template of the config wrong cannot be expanded: .*the task has no secret with the target 'nobody'$/,
      ],
      ["binary", /^exec: the content of the config binary is not UTF-8 text/],
    ] as const) {
      await muster(
        ["service", "create", "-d", "--driver=exec", `--name=${name}`, "--restart-condition=none", `--config=${name}`],
        ["--", "sleep", "1000"],
      );
      const refused = await until("a rejected task", async () => {
        const [task] = await tasksOf(manager, name);
        return task?.status?.state === "REJECTED" ? task : null;
      });
      t.regex(refused.status?.err ?? "", reason);
      t.false(isKept(refused.id));
    }

    await manager.muster("service", "rm", "web", "wrong", "binary");
    await until("all task files to be removed", () => !isKept(second.id));
    await manager.muster("secret", "rm", "password-2");
    for (const { output: log } of [agent.process, manager.process])
      t.false(log.includes("canary-"), "no log contains one");
    // The agent's disk never held a secret except where the process itself wrote one.
    const found = execFileSync("sh", ["-c", `grep -rl canary- "${agent.dataDir}" || true`], { encoding: "utf8" });
    t.deepEqual(
      found.split("\n").filter((path) => path !== "" && !/\/tasks\/\w+\/stdout$/.test(path)),
      [],
    );
  },
);
