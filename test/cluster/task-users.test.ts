// An operator is not root on the nodes: process tasks run as nobody unless a node allows more.
import test from "ava";
import { existsSync, mkdirSync, chmodSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { startAgent, startManager, tempDir } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";

test("a process task runs as nobody, and as root only on a node that allows it", async (t) => {
  const manager = await startManager(t);
  await startAgent(t, manager, { hostname: "strict", tasksAs: "default" });
  const shared = tempDir(t, "users");
  chmodSync(shared, 0o755);
  const seen = join(shared, "seen");
  mkdirSync(seen);
  chmodSync(seen, 0o777);
  const base = ["service", "create", "--quiet", "--detach", "--driver", "exec", "--restart-condition", "none"];
  const create = (name: string, ...flags: readonly string[]) => {
    const script = `id -un > ${seen}/${name}.new && mv ${seen}/${name}.new ${seen}/${name}; exec sleep 600`;
    return manager.muster(...base, "--name", name, ...flags, "sh", "-c", script);
  };
  const userOf = (name: string) =>
    until(`the user of ${name}`, () => existsSync(join(seen, name)) && readFileSync(join(seen, name), "utf8").trim());

  await create("plain");
  t.is(await userOf("plain"), "nobody");
  const { uid } = statSync(join(seen, "plain"));
  t.not(uid, 0);
  t.is((await manager.muster("task", "exec", "plain.1", "id", "-un")).trim(), "nobody", "also commands in it");
  const writes = "touch local/x && cat $MUSTER_SECRETS/* 2>/dev/null; cd $NOMAD_TASK_DIR && touch y && echo written";
  t.regex(
    await manager.muster("task", "exec", "plain.1", "sh", "-c", writes),
    /written/,
    "its directories are its own",
  );

  await create("root", "--user", "root");
  const why = await until("the refusal", async () => {
    const text = await manager.muster("service", "ps", "--no-trunc", "root");
    return /Rejected/i.test(text) && text;
  });
  t.regex(why, /this node runs no task as root/);
  t.false(existsSync(join(seen, "root")));

  await startAgent(t, manager, { hostname: "lenient", args: ["--allow-root"], tasksAs: "default" });
  await create("allowed", "--user", "root", "--constraint", "node.hostname==lenient");
  t.is(await userOf("allowed"), "root");
  await create("still", "--constraint", "node.hostname==lenient");
  t.is(await userOf("still"), "nobody");
});
