// A control socket that does not accept a connection: the command says why, and what to do.
import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";

const main = fileURLToPath(new URL("../../cli/main.ts", import.meta.url));
const isRoot = process.getuid?.() === 0;
/** As root, but bound by the modes of files. */
const withoutCapabilities = isRoot ? ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] : [];

function folderOf(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), "muster-unconnected-"));
  t.teardown(() => {
    chmodSync(folder, 0o700);
    rmSync(folder, { recursive: true });
  });
  return folder;
}

/** Standard error of a command that fails. */
function refusal(t: ExecutionContext, before: readonly string[], ...args: readonly string[]): string {
  const { MUSTER_CONTEXT: _context, MUSTER_HOST: _host, ...outer } = process.env;
  const state = folderOf(t);
  const env = { ...outer, HOME: state, XDG_CONFIG_HOME: state, XDG_STATE_HOME: state };
  const [command = "", ...rest] = [...before, process.execPath, main, ...args];
  const ran = spawnSync(command, rest, { encoding: "utf8", env });
  t.is(ran.status, 1, ran.stderr);
  t.is(ran.stdout, "");
  return ran.stderr;
}

test("a command whose control socket is absent, closed or not its own says so", async (t) => {
  const folder = folderOf(t);
  const path = join(folder, "control.sock");
  const said = (before: readonly string[] = []): string => refusal(t, before, "--host", path, "node", "ls");
  const begin = `muster: cannot connect to the manager at ${path}: `;
  const start = "Start it with 'muster up', 'muster manager' or 'systemctl start muster-manager'";
  t.is(
    said(),
    `${begin}no such socket, so no manager is running there. ${start}, or name another socket with --host\n`,
  );

  // As after kill -9: the name remains, and nobody listens.
  const server = createServer().listen(join(folder, "other.sock"));
  await once(server, "listening");
  renameSync(join(folder, "other.sock"), path);
  server.close();
  await once(server, "close");
  t.is(
    said(),
    `${begin}connection refused: its manager has stopped, or is still starting, as its log says. ${start}\n`,
  );

  chmodSync(folder, 0);
  t.is(
    said(withoutCapabilities),
    `${begin}permission denied: only root and the user of the manager's process may open it. Run the command as one of ` +
      "them, or log in as a user of the cluster (see 'muster context create --help')\n",
  );
});

(isRoot ? test : test.skip)(
  "a user who may not enter the data dir of the package's manager hears of the permission",
  (t) => {
    const scene =
      "mount -t tmpfs none /var/lib && mkdir -p /var/lib/muster/manager && chmod 0 /var/lib/muster/manager && " +
      "mount -t tmpfs none /run && " +
      'exec "$@"';
    const unshared = ["unshare", "--mount", "sh", "-c", scene, "sh", ...withoutCapabilities];
    t.regex(
      refusal(t, unshared, "node", "ls"),
      /^muster: cannot connect to the manager at \/var\/lib\/muster\/manager\/control\.sock: permission denied: /,
    );
  },
);
