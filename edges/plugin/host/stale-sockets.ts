/** Sockets of plugins and of their children that were killed before they could take them away. */
import { readdir, rm } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";

/** What go-plugin, and our own server, call their sockets; a unique number follows. */
const prefix = "plugin";

/**
 * Removes those that nobody listens on. Asked by a connection, not of `/proc/net/unix`, which tells only of one's own network
 * namespace. Never throws: what cannot be removed is in nobody's way.
 */
export async function sweepSockets(folder: string): Promise<void> {
  const names = await readdir(folder).catch(() => []);
  for (const name of names.filter((each) => each.startsWith(prefix))) {
    const path = join(folder, name);
    if (await isDeserted(path)) await rm(path, { force: true }).catch(() => {});
  }
}

function isDeserted(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ path });
    socket.once("connect", () => {
      socket.destroy();
      resolve(false);
    });
    socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code === "ECONNREFUSED"));
  });
}
