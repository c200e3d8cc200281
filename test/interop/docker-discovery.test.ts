// Prometheus, unmodified, discovers the nodes, services and tasks of a stock manager and of ours: the labels of its targets are equal.
import { execFile, spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import anyTest, { type ExecutionContext } from "ava";
import { engineMissing } from "../fixtures/docker-engine.ts";
import { labMissing } from "../fixtures/lab.ts";
import { tempDir } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { bothSides, type ManagerSide } from "../fixtures/stock-beside.ts";
import { until } from "../fixtures/until.ts";
import { prometheus } from "../support/prometheus.ts";
import { patient } from "../support/slowness.ts";

const canRun = engineMissing() === null && labMissing() === null && prometheus !== null;
const test = canRun ? anyTest.serial : anyTest.serial.skip;
const run = promisify(execFile);

const roles = ["nodes", "services", "tasks"] as const;
type Labels = Readonly<Record<string, string>>;

/** All that Prometheus discovers through the sockets: targets of `NAME-ROLE` for each. */
async function discovery(
  t: ExecutionContext,
  sockets: Readonly<Record<string, string>>,
): Promise<() => Promise<readonly Labels[]>> {
  const dir = tempDir(t, "prometheus");
  const jobs = Object.entries(sockets).flatMap(([name, socket]) =>
    roles.map((role) => ({
      job_name: `${name}-${role}`,
      dockerswarm_sd_configs: [{ host: `unix://${socket}`, role, refresh_interval: "1s" }],
    })),
  );
  // YAML includes JSON. Nothing listens at the targets, so they are scraped rarely.
  const config = { global: { scrape_interval: "1h" }, scrape_configs: jobs };
  writeFileSync(join(dir, "prometheus.yml"), JSON.stringify(config));
  const address = `127.0.0.1:${await freePort()}`;
  const child = spawn(
    prometheus as string,
    [
      `--config.file=${join(dir, "prometheus.yml")}`,
      `--storage.tsdb.path=${join(dir, "data")}`,
      `--web.listen-address=${address}`,
    ],
    { stdio: "ignore" },
  );
  t.teardown(async () => {
    const exit = new Promise((resolve) => child.once("exit", resolve));
    if (child.exitCode === null && child.kill()) await exit;
  });
  return async () => {
    const answer = await fetch(`http://${address}/api/v1/targets?state=active`).catch(() => null);
    if (answer?.ok !== true) return [];
    const { data } = (await answer.json()) as {
      readonly data: { readonly activeTargets: readonly { readonly discoveredLabels: Labels }[] };
    };
    return data.activeTargets.map(({ discoveredLabels }) => discoveredLabels);
  };
}

const label = (name: string): string => `__meta_dockerswarm_${name}`;

async function prepare({ node, socket }: ManagerSide): Promise<void> {
  const docker = (...words: readonly string[]) => run("docker", ["-H", `unix://${socket}`, ...words]);
  await docker("node", "update", "--label-add", "zone=a", node);
  await docker("network", "create", "--driver", "overlay", "--label", "net=back", "back");
  const create = async (...words: readonly string[]): Promise<void> => {
    const common = ["service", "create", "--detach", "--no-resolve-image", "--network", "back", "--label", "a.b=c"];
    await docker(...common, ...words, "bb:1", "sleep", "1000");
  };
  await create("--name", "web", "--container-label", "job=web", "--publish", "18080:80", "--replicas", "2");
  await create("--name", "every", "--mode", "global");
}

/** Labels of a manager: at the stock one it runs the tasks as well, ours has a node for that. */
const ofManagers = /_node_(?:role|manager_\w+)$/;

/** In lines, without what differs between two clusters. */
function lines(targets: readonly Labels[], isMeant: (label: string) => boolean): readonly string[] {
  return targets
    .map((labels) =>
      Object.entries(labels)
        .filter(([name]) => name !== "job" && isMeant(name))
        .map(([name, value]) => {
          const isAddress = name === "__address__" || name.endsWith("_address");
          if (isAddress) return `${name}=${value.replace(/^10\.[\d.]+(?::[1-6]\d{4}$|:23\d\d$)?/, "ADDRESS")}`;
          if (name.endsWith("_hostname")) return `${name}=HOST`;
          return `${name}=${value.replace(/^(?:[0-9a-z]{25}|[0-9a-f]{64})$/, "ID")}`;
        })
        .toSorted()
        .join("\n"),
    )
    .toSorted();
}

test("Prometheus discovers nodes, services and tasks with a stock manager's labels", async (t) => {
  t.timeout(patient(120_000));
  const { ours, stock } = await bothSides(t);
  await Promise.all([prepare(stock), prepare(ours)]);
  const discover = await discovery(t, { stock: stock.socket, ours: ours.socket });
  let targets: readonly Labels[] = [];
  // Of three tasks: two publish a port on the ingress network, and all are on the other one.
  await until(
    "five running tasks' targets of each manager",
    async () => {
      targets = await discover();
      const running = targets.filter((each) => each[label("task_state")] === "running");
      return running.length === 10;
    },
    patient(60_000),
  );
  const found = (side: string, role: string, meant: (labels: Labels) => boolean): readonly Labels[] =>
    targets.filter((labels) => labels["job"] === `${side}-${role}` && meant(labels));
  const both = (role: string, meant: (labels: Labels) => boolean, isMeant: (label: string) => boolean): void => {
    const [expected, seen] = ["stock", "ours"].map((side) => lines(found(side, role, meant), isMeant));
    t.true((expected as readonly string[]).length > 0, role);
    t.deepEqual(seen, expected, role);
  };
  const common = (name: string): boolean => !ofManagers.test(name);
  both("nodes", (labels) => labels[label("node_label_zone")] === "a", common);
  both(
    "nodes",
    (labels) => labels[label("node_role")] === "manager",
    (name) => ofManagers.test(name),
  );
  for (const role of ["services", "tasks"]) both(role, () => true, common);
});
