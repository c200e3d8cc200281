// The program that holds a network: run on this machine, and decoded as instructions for the other one.
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { pauseImage, pauseProgram } from "../../drivers/docker/pause.ts";
import { until } from "../fixtures/until.ts";

const own = { x64: "amd64", arm64: "arm64" }[process.arch as string];
const isLinux = process.platform === "linux" && own !== undefined;
const here = isLinux ? test : test.skip;
const asRoot = isLinux && process.getuid?.() === 0 ? test : test.skip;

function program(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), "muster-pause-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "pause");
  writeFileSync(path, pauseProgram(own as string) ?? "", { mode: 0o755 });
  return path;
}

const isAsleep = (pid: number): boolean => /^State:\tS/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));

for (const signal of ["SIGTERM", "SIGINT"] as const)
  here(`it waits, whatever interrupts it, until ${signal}`, async (t) => {
    const child = spawn(program(t), { stdio: "ignore" });
    t.teardown(() => child.kill("SIGKILL"));
    const pid = child.pid as number;
    await until("it to sleep", () => readFileSync(`/proc/${pid}/comm`, "utf8") === "pause\n" && isAsleep(pid));
    // A stop interrupts the wait for a signal.
    child.kill("SIGSTOP");
    await until("the stop", () => /^State:\tT/m.test(readFileSync(`/proc/${pid}/status`, "utf8")));
    child.kill("SIGCONT");
    await until("it to sleep again", () => isAsleep(pid));
    child.kill(signal);
    t.deepEqual(await once(child, "exit"), [0, null]);
  });

asRoot("PS1, PS2: as the first process of a namespace it exits on request, and reaps orphans", async (t) => {
  const child = spawn("unshare", ["--pid", "--fork", "--kill-child", program(t)], { stdio: "ignore" });
  t.teardown(() => child.kill("SIGKILL"));
  const children = (): string => readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8").trim();
  await until("it to sleep", () => children() !== "" && isAsleep(Number(children())));
  const pid = Number(children());
  // The inner shell exits at once, and its child is left to the first process, which never waited for it.
  execFileSync("nsenter", [`--pid=/proc/${pid}/ns/pid`, "--", "sh", "-c", "(sleep 0.1 &) "]);
  await until("all processes to exit", () => readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim() === "");
  process.kill(pid, "SIGTERM");
  t.deepEqual(await once(child, "exit"), [0, null]);
});

test("on arm64 it makes the same calls", (t) => {
  const file = pauseProgram("arm64") as Buffer;
  t.is(file.readUInt16LE(18), 183);
  t.is(file.readBigUInt64LE(24), 0x400078n);
  const words = Array.from({ length: 22 }, (_, at) => file.readUInt32LE(120 + 4 * at).toString(16));
  // As golang.org/x/arch's disassembler reads them.
  t.deepEqual(words.join(" ").split(/ (?=d2800220|d2800000|10000240|37ffff40)/), [
    "d2800220 100002a1 d2800002 d2800103 d28010c8 d4000001", // x0=17 x1=.+0x54 x2=0 x3=8 x8=134 svc
    "d2800000 100002e1 d2800002 d2800103 d28010e8 d4000001", // x0=0 x1=.+0x5c x2=0 x3=8 x8=135 svc
    "10000240 d2800001 d2800002 d2800103 d2801128 d4000001", // x0=.+0x48 x1=0 x2=0 x3=8 x8=137 svc
    "37ffff40", // tbnz w0, #31, .-0x18
    "d2800000 d2800bc8 d4000001", // x0=0 x8=94 svc
  ]);
  t.is(file.subarray(208).toString("hex"), `01${"00".repeat(31)}0240${"00".repeat(6)}`);
});

test("its image is a tar of one file, the same each time, and there is none for other machines", (t) => {
  const image = pauseImage("amd64");
  t.deepEqual(image, pauseImage("amd64"));
  t.regex(image?.name ?? "", /^muster-pause:[0-9a-f]{12}$/);
  const listed = execFileSync("tar", ["-tv"], { input: image?.archive ?? "", encoding: "utf8" });
  t.regex(listed, /^-r-xr-xr-x (0\/0|root\/root) +\d+ .* pause\n$/);
  t.deepEqual(execFileSync("tar", ["-xO"], { input: image?.archive ?? "" }), pauseProgram("amd64"));
  t.is(pauseImage("s390x"), null);
});
