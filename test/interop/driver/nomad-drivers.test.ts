// Nomad's own drivers under our agent: their tasks start, and continue in the same process whichever process is stopped or
// killed.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import anyTest from "ava";
import { engineMissing, startEngine } from "../../fixtures/docker-engine.ts";
import { until } from "../../fixtures/until.ts";
import { peersMissing } from "../go/peers.ts";
import { isRunning, outlives, processesCalled } from "./nomad-outlives.ts";
import { createLong, nomadWorld } from "./nomad-world.ts";

const missing = peersMissing("nomad-driver") ?? (process.getuid?.() === 0 ? null : "needs root");
const test = missing === null ? anyTest.serial : anyTest.serial.skip;
const testWithEngine = missing === null && engineMissing() === null ? anyTest.serial : anyTest.serial.skip;

test("a task of Nomad's raw_exec keeps its process through every exit of plugin and agent", async (t) => {
  const { agent, manager } = await nomadWorld(t, "raw_exec", { enabled: true });
  await createLong(manager, "raw_exec", { command: "sleep", args: ["861731"] });
  await outlives(t, { agent, manager }, "raw_exec", processesCalled("sleep 861731"));
});

test("a task of Nomad's exec runs in a chroot of the node's paths, and keeps its process too", async (t) => {
  const { agent, manager } = await nomadWorld(t, "exec", null);
  // The command is looked up in the chroot; it prints what it sees there, and cannot write.
  const script =
    "exec 2>&1; ls -d /bin /etc/passwd /usr/bin /alloc/data /local /secrets; touch /usr/x; exec sleep 861732";
  await createLong(manager, "exec", { command: "sh", args: ["-c", script] });
  const logs = (): Promise<string> => manager.muster("service", "logs", "--raw", "long");
  await until("the task to run", () => isRunning(manager));
  const said = await until("all of its output", async () => {
    const text = await logs();
    if (!/touch: .*(Read-only|denied)/.test(text)) throw new Error(text);
    return text;
  });
  t.regex(said, /\/bin\n.*\/etc\/passwd\n.*\/usr\/bin/s);
  t.regex(said, /\/alloc\/data/);
  t.false(/No such file/.test(said), said);
  await outlives(t, { agent, manager }, "exec", processesCalled("sleep 861732"));
  t.false(readFileSync("/proc/self/mountinfo", "utf8").includes(agent.dataDir), "none of it is mounted");
});

testWithEngine("a task of Nomad's docker keeps its process through every exit of plugin and agent", async (t) => {
  const engine = await startEngine(t);
  const { agent, manager } = await nomadWorld(t, "docker", { endpoint: `unix://${join(engine.dir, "docker.sock")}` });
  const config = { image: "bb:1", command: "sleep", args: ["861733"], network_mode: "none" };
  await createLong(manager, "docker", config);
  await outlives(t, { agent, manager }, "docker", processesCalled("sleep 861733"));
});
