/**
 * Foreign peers in Go: which there are, and where each is kept once it is built. The modules beside this file pin what they
 * are made of; README.md there says what each is for.
 *
 * A program is kept in the user's cache in a folder named by its module's sources, so that it is built once for each version
 * of these, by `npm run peers`, whoever runs the tests.
 */
import { createHash } from "node:crypto";
import { existsSync, globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { cacheFolder } from "../../../runtime/nats/server-binary.ts";

export interface Peer {
  /** Folder of its module, beside this file. */
  readonly module: string;
  /** As `go build` names it, in that module. */
  readonly package: string;
  /** A test binary (`go test -c`): the peer is a kit that is written as Go tests. */
  readonly isTest?: true;
  /** Takes minutes and is not among those that the tests need: built only when it is named. */
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
  "juju-client": { module: "juju", package: "./client" },
  juju: { module: "juju", package: "github.com/juju/juju/cmd/juju", isLarge: true },
  nomad: { module: "nomad", package: "github.com/hashicorp/nomad", isLarge: true },
} as const satisfies Readonly<Record<string, Peer>>;

export type PeerName = keyof typeof peers;

const here = fileURLToPath(new URL(".", import.meta.url));

export function moduleFolder(module: string): string {
  return join(here, module);
}

/** Where the program is once it is built. */
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

/** The reason for which a test that needs these has to be skipped; null when all are there. In CI, where nothing may be
 *  skipped, a missing one throws. */
export function peersMissing(...names: readonly PeerName[]): string | null {
  const absent = names.filter((name) => !existsSync(peerPath(name)));
  if (absent.length === 0) return null;
  const reason = `needs ${absent.join(", ")}: run \`npm run peers -- ${absent.join(" ")}\` (needs Go)`;
  if (process.env["MUSTER_CI"] !== undefined) throw new Error(reason);
  return reason;
}
