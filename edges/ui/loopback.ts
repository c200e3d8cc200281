/** Serves the page to a browser on this machine, for `muster ui` and `muster replay`. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { UserError } from "../../lib/user-error.ts";
import type { Logger } from "../../runtime/ports/index.ts";
import type { UiSession } from "./backend.ts";
import { PageFiles } from "./files.ts";
import { headersTimeoutMs, idleTimeoutMs, loopbackConnectionsMax, loopbackSocketsMax } from "./limits.ts";
import { PageServer } from "./page-server.ts";
import type { PageLimits } from "./page-socket.ts";
import { TokenDoor } from "./token-door.ts";

interface LoopbackOptions {
  /** 0 chooses a free port. */
  readonly port: number;
  /** The command that serves it, such as `muster ui`, for texts. */
  readonly command: string;
  /** Called for each page, and when a page connects again. Rejects with an Error whose message the page shows. */
  readonly open: () => Promise<UiSession>;
  readonly log: Logger;
  readonly limits?: PageLimits;
}

export interface LoopbackServer {
  readonly port: number;
  /** To open in a browser, once. */
  readonly address: string;
  /** Breaks the connections of all pages; they connect again. */
  disconnect(): void;
  close(): Promise<void>;
}

/** Rejects with UserError if the port is taken, or the page was not built. */
export async function listenLoopback({ port, command, open, log, limits }: LoopbackOptions): Promise<LoopbackServer> {
  const files = new PageFiles();
  const server = createServer({ headersTimeout: headersTimeoutMs, keepAliveTimeout: idleTimeoutMs });
  server.maxConnections = loopbackConnectionsMax;
  server.on("clientError", (_error, socket) => socket.destroy());
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const how =
        error.code === "EADDRINUSE" ? "another program uses the port: choose another with --port" : error.message;
      reject(new UserError(`cannot listen on 127.0.0.1:${port}: ${how}`, { cause: error }));
    });
    server.listen(port, "127.0.0.1", resolve);
  });
  const { port: chosen } = server.address() as AddressInfo;
  const door = new TokenDoor({ port: chosen, command, open });
  const pages = new PageServer(server, {
    door,
    files,
    log,
    socketsMax: loopbackSocketsMax,
    userSocketsMax: loopbackSocketsMax,
    ...(limits === undefined ? {} : { limits }),
  });
  return {
    port: chosen,
    address: door.address,
    disconnect: () => pages.disconnect(),
    async close() {
      server.close();
      await pages.close();
      server.closeAllConnections();
    },
  };
}
