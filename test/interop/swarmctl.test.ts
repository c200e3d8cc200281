// A stock swarmctl against our manager's control socket: each of its commands prints the same on standard output and standard
// error, and exits with the same status, as against a stock swarmd.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import anyTest from "ava";
import { runningTasks } from "../fixtures/control-client.ts";
import { startAgent, startManager, tempDir } from "../fixtures/muster.ts";
import { startSwarmd, swarmctl, swarmkitMissing } from "../fixtures/swarmkit.ts";
import { until } from "../fixtures/until.ts";

const test = swarmkitMissing() === null ? anyTest.serial : anyTest.serial.skip;

/** A command's output without the parts that differ between runs: ids, times, column widths, row order. */
function told({ code, stdout, stderr }: Awaited<ReturnType<typeof swarmctl>>): string {
  const plain = (text: string): string[] =>
    text
      .replaceAll(/\b[0-9a-z]{25}\b/g, "ID")
      .replaceAll(/SWMKEY-1-[\w+/]+/g, "KEY")
      .replaceAll(/SWMTKN-1-\w+-ID|SWMTKN-1-\w+-\w+/g, "TOKEN")
      .replaceAll(/\d{4}-\d\d-\d\d[T ][\d:.]+ ?\S*( \+0000 UTC| UTC)?/g, "TIME")
      .replaceAll(/(Less than a second|\d+ seconds?|About a minute|\d+ minutes?) ago|\bnow\b/g, "RECENTLY")
      // Our allocation is immediate; swarmd's may take a moment.
      .replaceAll(/\bNEW\b/g, "PENDING")
      .replaceAll(/-{2,}/g, "--")
      .split("\n")
      .map((line) => line.replaceAll(/\s+/g, " ").trim())
      // `config inspect` prints a Go structure, including addresses.
      .filter((line) => line !== "" && !line.startsWith("&{0x"));
  return JSON.stringify({ code, out: plain(stdout).toSorted(), error: plain(stderr) }, null, 1);
}

/** `NODE` stands for the id of the manager's node, `SECRET` and `CONFIG` for files. */
const commands: readonly string[] = [
  "cluster ls",
  "cluster inspect default",
  "cluster inspect nobody",
  "cluster update default --certexpiry 1000h --heartbeatperiod 7s --taskhistory 3",
  "cluster update default --log-driver json-file --log-opt max-size=1m",
  "cluster update default --certexpiry 59m",
  "cluster update default --rotate-join-token worker",
  "cluster inspect default",
  "cluster unlock-key default",
  "cluster update default --autolock",
  "cluster unlock-key default",
  "cluster update default --rotate-unlock-key",
  "cluster update default --autolock=false",
  "cluster unlock-key default",
  "network ls",
  "network create --name back --driver overlay --subnet 10.9.0.0/24 --gateway 10.9.0.1",
  "network create --name back2 --driver overlay --subnet 10.9.0.0",
  "network create --name b.ad --driver overlay",
  "network inspect nobody",
  "network remove nobody",
  "network ls",
  "secret create key --file SECRET",
  "secret create key --file SECRET",
  "secret create bad/name --file SECRET",
  "secret inspect key",
  "secret inspect nobody",
  "secret ls",
  "config create conf --file CONFIG",
  "config create conf --file CONFIG",
  "config inspect conf",
  "config ls",
  "service create --name web --image bb:1 --replicas 2 --network back --secret key --env A=b --ports 8080:80/tcp",
  "service create --name web --image bb:1",
  "service create --name clash --image bb:1 --ports 8080:80/tcp",
  "service create --name bad --image bb:1 --constraint node.labels.zone=",
  "service create --name bad --image bb:1 --memory-limit 1m",
  "service create --name bad --image bb:1 --cpu-limit 0.0001",
  "service create --name bad",
  "service create --name all --image bb:1 --mode global --update-parallelism 2 --update-delay 3s --label team=a",
  "service inspect all",
  "service inspect nobody",
  "service update web --replicas 3",
  "service update nobody --replicas 3",
  "service ls",
  "network remove back",
  "secret remove key",
  "service inspect web",
  "task ls",
  "task inspect nobody",
  "task remove nobody",
  "service remove web",
  "service remove all",
  "service remove web",
  "service ls",
  "secret remove key",
  "secret remove key",
  "config remove conf",
  "network remove back",
  "node update NODE --label zone=a",
  "node inspect NODE --no-resolve",
  "node pause NODE",
  "node activate NODE",
  "node activate NODE",
  "node drain NODE",
  "node demote NODE",
  "node promote NODE",
  "node remove NODE",
  "node inspect nobody",
  "node remove nobody",
];

/** Where ours differs or prints more on purpose: the minimum that each prints. */
const meant = new Map<string, { readonly stock: RegExp; readonly ours: RegExp }>([
  [
    // A node's address, hostname and platform: a swarmd without an engine has none of them.
    "node inspect NODE --no-resolve",
    {
      stock: /"Availability : DRAIN".*"Leader : yes".*"Node Labels : zone=a"/s,
      ours: /"Availability : DRAIN".*"Leader : yes".*"Node Labels : zone=a"/s,
    },
  ],
]);

test("every command of a stock swarmctl behaves and prints the same against our socket as against a stock manager's", async (t) => {
  const [ours, stock] = await Promise.all([startManager(t), startSwarmd(t)]);
  const dir = tempDir(t, "swarmctl");
  mkdirSync(dir, { recursive: true });
  const files = { SECRET: join(dir, "secret"), CONFIG: join(dir, "config") };
  writeFileSync(files.SECRET, "hidden");
  writeFileSync(files.CONFIG, "shown");
  const sides = await Promise.all(
    [join(ours.dataDir, "control.sock"), stock.socket].map(async (socket) => {
      const { stdout } = await swarmctl(socket, "node", "ls");
      const node = /^([0-9a-z]{25}) /m.exec(stdout)?.[1] ?? "";
      // Our manager never runs tasks itself, and is drained from the start.
      await swarmctl(socket, "node", "drain", node);
      const words: Record<string, string> = { ...files, NODE: node };
      return async (command: string): Promise<string> =>
        told(await swarmctl(socket, ...command.split(" ").map((word) => words[word] ?? word)));
    }),
  );
  const [atOurs, atStock] = sides as [(typeof sides)[0], (typeof sides)[0]];
  const different: string[] = [];
  for (const command of commands) {
    const [answer, expected] = [await atOurs(command), await atStock(command)];
    const exception = meant.get(command);
    const isAsMeant =
      exception === undefined ? answer === expected : exception.ours.test(answer) && exception.stock.test(expected);
    if (!isAsMeant) different.push(`${command}\nstock: ${expected}\nours: ${answer}`);
  }
  t.is(different.join("\n\n"), "");
});

test("swarmctl sees tasks run on an agent, follows their logs, and removes a task and the node", async (t) => {
  const manager = await startManager(t);
  await startAgent(t, manager, { hostname: "worker" });
  const socket = join(manager.dataDir, "control.sock");
  const ctl = async (...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await swarmctl(socket, ...args);
    t.is(code, 0, `${args.join(" ")}: ${stderr}`);
    return stdout;
  };
  const talk = ["sh", "-c", "echo said; sleep 600"];
  await manager.muster(..."service create --detach --name talk --driver exec".split(" "), ...talk);
  const [task] = await until("a running task", async () => {
    const tasks = await runningTasks(manager);
    return tasks.length === 1 ? tasks : null;
  });
  const id = task?.id ?? "";
  t.regex(await ctl("node", "ls"), /worker +ACCEPTED +READY +ACTIVE/);
  t.regex(await ctl("task", "ls"), new RegExp(`${id} +talk\\.1 +RUNNING +RUNNING .*worker`));
  t.regex(await ctl("service", "ls"), /talk +1\/1/);
  t.regex(await ctl("service", "logs", "talk"), /said/);
  await ctl("task", "remove", id);
  await until("another task in its place", async () => (await runningTasks(manager)).some((other) => other.id !== id));
  // For a task without a container swarmctl can only print its row: its `task inspect` crashes on one.
  await ctl("service", "create", "--name", "box", "--image", "bb:1", "--constraint", "node.labels.zone==none");
  const [, boxed] = /^([0-9a-z]{25}) +box\.1 /m.exec(await ctl("task", "ls")) ?? [];
  t.regex(await ctl("task", "inspect", boxed ?? ""), /Image +: bb:1/);
  await ctl("node", "drain", "worker");
  t.regex(await ctl("node", "ls"), /worker +ACCEPTED +READY +DRAIN/);
  const refused = await swarmctl(socket, "node", "remove", "worker");
  t.regex(refused.stderr, /node [0-9a-z]{25} is not down and can't be removed/);
});
