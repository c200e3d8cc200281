/**
 * The sandbox of a chaos run: its own process, mount and network namespaces, below one folder. When its first process exits for
 * any reason, the kernel kills every process in it and removes every mount, interface and network namespace with them. Only the
 * folder remains; it is removed here unless it holds the logs of a failure.
 */
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { labMissing } from "../fixtures/lab.ts";

/** Tools of Debian's base system, besides those that a lab needs. */
const tools = ["mkfs.ext4", "perl", "mount", "umount", "nft", "openssl", "sh"];

/** Why no chaos run is possible here; null if one is. */
export function chaosMissing(): string | null {
  const missing = labMissing();
  if (missing !== null) return missing;
  for (const tool of tools) {
    try {
      execFileSync("sh", ["-c", `command -v ${tool}`], { stdio: "ignore" });
    } catch {
      return `needs ${tool}`;
    }
  }
  const probe = mkdtempSync(join(tmpdir(), "muster-chaos-probe-"));
  try {
    // A file system in a file, inside namespaces: containers and some kernels lack one or both.
    const script = `mount -t tmpfs chaos ${probe} && truncate -s 16M ${probe}/image && mkfs.ext4 -q ${probe}/image && mkdir ${probe}/disk && mount -o loop ${probe}/image ${probe}/disk`;
    execFileSync(
      "unshare",
      ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "sh", "-c", script],
      {
        stdio: "ignore",
      },
    );
    return null;
  } catch {
    return "needs namespaces and loop devices";
  } finally {
    rmSync(probe, { recursive: true, force: true });
  }
}

/**
 * Runs `command` (a file and its arguments, plus the folder) in the sandbox, with this process's standard streams; resolves
 * with its exit status. SIGINT and SIGTERM are forwarded once; a second one ends everything at once.
 */
export async function runInSandbox(command: readonly string[]): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), "muster-chaos-"));
  // The first process of a process namespace must reap orphans, as a waiting shell does.
  const init = 'exec 3<&0; "$@" <&3 & wait $!';
  const child = spawn(
    "unshare",
    [
      "--mount",
      "--pid",
      "--fork",
      "--kill-child",
      "--mount-proc",
      "--net",
      "sh",
      "-c",
      init,
      folder,
      ...command,
      folder,
    ],
    // A group of its own: Ctrl-C in a terminal goes to this process, which decides what to do.
    { stdio: ["pipe", "inherit", "inherit"], detached: true },
  );
  let signals = 0;
  const onSignal = (): void => {
    signals += 1;
    // Standard input crosses the sandbox: its end means "stop, and report how far it got".
    if (signals === 1) child.stdin?.end();
    else child.kill("SIGKILL");
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, onSignal);
  const status = await new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => resolve(code ?? 1));
  });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.off(signal, onSignal);
  if (status === 1 && signals === 0) process.stdout.write(`the processes' logs: ${join(folder, "logs")}\n`);
  else rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  return signals > 0 && status === 0 ? 130 : status;
}
