/**
 * A Compose file of many services, from the command to all tasks RUNNING on simulated agents: `muster stack deploy`, and in the
 * same run `docker stack deploy` on a stock dockerd manager.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Generator } from "./generator.ts";
import { agentsOf, atEachManager, generated, measure } from "./load.ts";
import type { Peer } from "./peers.ts";
import { mebibytes, seconds, table } from "./table.ts";

interface Stack {
  readonly services: number;
  readonly replicas: number;
  readonly agents: number;
}

/** Every service with a config and a secret, on one network of the stack with more addresses than the default 254. */
function composeFile({ replicas, services }: Stack): string {
  const service = (at: number): string => `
  part${at}:
    image: bench:1
    environment: {PART: "${at}"}
    networks: [inner]
    configs: [settings]
    secrets: [password]
    deploy: {replicas: ${replicas}, labels: {part: "${at}"}}`;
  return `version: "3.8"
networks: {inner: {ipam: {config: [{subnet: 10.99.0.0/16}]}}}
configs: {settings: {file: ./settings}}
secrets: {password: {file: ./password}}
services:${Array.from({ length: services }, (_, at) => service(at)).join("")}
`;
}

export async function stackTable(short: boolean): Promise<string> {
  const stack: Stack = short ? { services: 5, replicas: 2, agents: 5 } : { services: 50, replicas: 4, agents: 100 };
  const tasks = stack.services * stack.replicas;
  const folder = mkdtempSync(join(tmpdir(), "muster-bench-stack-"));
  const file = join(folder, "compose.yaml");
  writeFileSync(file, composeFile(stack));
  writeFileSync(join(folder, "settings"), "colour: green\n");
  writeFileSync(join(folder, "password"), "not a secret\n");
  try {
    const rows = await atEachManager([stack], async (peer, { agents }) => {
      let commandMs = 0;
      const deploying: Peer = {
        ...peer,
        createService: () => {
          const startedAt = performance.now();
          peer.deployStack("bench", file);
          commandMs = performance.now() - startedAt;
        },
      };
      const generator = new Generator(peer, agentsOf({ agents, batch: false }));
      const result = await measure(deploying, generated(generator), { agents, tasks, idleSeconds: 0 });
      return [
        peer.name,
        seconds(commandMs / 1_000),
        seconds(result.runSeconds ?? 0),
        seconds(result.cpuSeconds ?? 0),
        mebibytes(result.memoryMiB),
      ];
    });
    const title = `A stack of ${stack.services} services, ${tasks} tasks on ${stack.agents} simulated agents`;
    return table(title, ["manager", "command returns", "command to all RUNNING", "manager's CPU", "peak memory"], rows);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
