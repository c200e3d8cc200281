/**
 * Foreign peers in Go, and where each is kept once built. The modules beside this file pin their versions; README.md there
 * describes the purpose of each.
 *
 * A program is kept in the user's cache, in a folder named by its module's sources: `npm run peers` builds it once for each
 * version of these, for all test runs.
 */
import { createHash } from "node:crypto";
import { existsSync, globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { cacheFolder } from "../../../runtime/nats/server-binary.ts";

export interface Peer {
  /** Folder of its module, beside this file. */
  readonly module: string;
  /** Package path for `go build` in that module. */
  readonly package: string;
  /** A test binary (`go test -c`): the peer is a kit written as Go tests. */
  readonly isTest?: true;
  /** Takes minutes to build and no default test needs it: built only when named. */
  readonly isLarge?: true;
}

export const peers = {
  swarmctl: { module: "swarmkit", package: "github.com/moby/swarmkit/v2/cmd/swarmctl" },
  swarmd: { module: "swarmkit", package: "github.com/moby/swarmkit/v2/cmd/swarmd" },
  "swarmkit-agents": { module: "swarmkit", package: "./agents" },
  h2spec: { module: "swarmkit", package: "github.com/summerwind/h2spec/cmd/h2spec" },
  "nomad-driver": { module: "nomad", package: "./driver" },
  "nomad-hcl": { module: "nomad", package: "./hcl" },
  "nomad-kit": { module: "nomad", package: "./kit", isTest: true },
  "go-plugin": { module: "nomad", package: "./plugin" },
  "docker-client": { module: "docker", package: "./walk" },
  "traefik-provider": { module: "traefik", package: "./provider" },
  "juju-client": { module: "juju", package: "./client" },
  juju: { module: "juju", package: "github.com/juju/juju/cmd/juju", isLarge: true },
  nomad: { module: "nomad", package: "github.com/hashicorp/nomad", isLarge: true },
} as const satisfies Readonly<Record<string, Peer>>;

export type PeerName = keyof typeof peers;

const here = fileURLToPath(new URL(".", import.meta.url));

export function moduleFolder(module: string): string {
  return join(here, module);
}

/** Where the built program is. */
export function peerPath(name: PeerName): string {
  const { module } = peers[name];
  const hash = createHash("sha256");
  const folder = moduleFolder(module);
  for (const file of globSync(["go.mod", "go.sum", "**/*.go"], { cwd: folder }).toSorted())
    hash
      .update(`${file}\0`)
      .update(readFileSync(join(folder, file)))
      .update("\0");
  return join(cacheFolder(), `peers-${module}-${hash.digest("hex").slice(0, 16)}`, name);
}

/**
 * Why a test that needs these peers must be skipped; null if all are built. In CI, where nothing may be skipped, a missing one
 * throws.
 */
export function peersMissing(...names: readonly PeerName[]): string | null {
  const absent = names.filter((name) => !existsSync(peerPath(name)));
  if (absent.length === 0) return null;
  const reason = `needs ${absent.join(", ")}: run \`npm run peers -- ${absent.join(" ")}\` (needs Go)`;
  if (process.env["MUSTER_CI"] !== undefined) throw new Error(reason);
  return reason;
}
