/** Removes sockets of plugins, and of their children, that were killed before they could do it. */
import { readdir, rm } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";

/** The name prefix of sockets in go-plugin and in our own server; a unique number follows. */
const prefix = "plugin";

/**
 * Removes sockets without a listener. It finds out by connecting, not from `/proc/net/unix`, which only covers its own network
 * namespace. Never throws: a socket that cannot be removed does no harm.
 */
export async function sweepSockets(folder: string): Promise<void> {
  const names = await readdir(folder).catch(() => []);
  for (const name of names.filter((each) => each.startsWith(prefix))) {
    const path = join(folder, name);
    if (await isStale(path)) await rm(path, { force: true }).catch(() => {});
  }
}

function isStale(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ path });
    socket.once("connect", () => {
      socket.destroy();
      resolve(false);
    });
    socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code === "ECONNREFUSED"));
  });
}
