/**
 * The software bill of materials of a release, in CycloneDX: the packages that its files depend on or contain. `npm sbom` writes
 * it; this file leaves out what only a checkout needs, and adds what does not come from npm. (`npm sbom --omit=dev` cannot be used:
 * npm 11 leaves out packages that a development dependency needs as well, `xstate` and `ws` among them.)
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { packages, version } from "../../lib/version.ts";
import { packagesOf } from "../licences.ts";
import { top } from "./bundle.ts";

interface Component {
  readonly "bom-ref": string;
  readonly [key: string]: unknown;
}

interface Bom {
  readonly metadata: { readonly component: Component; readonly [key: string]: unknown };
  readonly components: readonly Component[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
  readonly [key: string]: unknown;
}

/** A part of a release that does not come from npm. */
export interface ForeignPart {
  readonly name: string;
  readonly version: string;
  /** https://github.com/package-url/purl-spec */
  readonly purl: string;
  /** Such as `Apache-2.0`, if it is known. */
  readonly license?: string;
}

interface LockedPackage {
  readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional?: boolean }>>;
}

/** Packages that another may use, but which our installation does not bring: `NAME>NAME`. */
function optionalPeers(): ReadonlySet<string> {
  const { packages: locked } = JSON.parse(readFileSync(join(top, "package-lock.json"), "utf8")) as {
    readonly packages: Readonly<Record<string, LockedPackage>>;
  };
  return new Set(
    Object.entries(locked).flatMap(([path, { peerDependenciesMeta = {} }]) =>
      Object.entries(peerDependenciesMeta)
        .filter(([, { optional }]) => optional === true)
        .map(([peer]) => `${path.replace(/^.*node_modules\//, "")}>${peer}`),
    ),
  );
}

const nameOf = (ref: string): string => ref.replace(/@[^@]*$/, "");

/** Those packages, and what they need. */
function needed(from: readonly string[], { dependencies }: Bom): ReadonlySet<string> {
  const uses = new Map(dependencies.map(({ dependsOn, ref }) => [ref, dependsOn]));
  const optional = optionalPeers();
  const found = new Set<string>();
  const waiting = [...from];
  for (let ref = waiting.pop(); ref !== undefined; ref = waiting.pop()) {
    if (found.has(ref)) continue;
    const next = uses.get(ref);
    if (next === undefined) throw new Error(`npm sbom does not list ${ref}: run npm run setup`);
    found.add(ref);
    const own = nameOf(ref);
    waiting.push(...next.filter((each) => !optional.has(`${own}>${nameOf(each)}`)));
  }
  return found;
}

/** `builtAt`: of the commit, in ISO 8601, if it is known. The same inputs give the same text. */
export function billOfMaterials(builtAt: string | null, foreign: readonly ForeignPart[]): string {
  const text = execFileSync("npm", ["sbom", "--package-lock-only", "--sbom-format", "cyclonedx"], {
    cwd: top,
    encoding: "utf8",
    maxBuffer: 1 << 26,
  });
  const bom = JSON.parse(text) as Bom;
  const direct = Object.entries(packages).map(([name, exact]) => `${name}@${exact}`);
  // The web interface is part of every package, already bundled.
  const bundled = packagesOf(readFileSync(join(top, "ui/dist/LICENSES.txt"), "utf8"));
  const kept = needed([...direct, ...bundled], bom);
  const own = bom.metadata.component;
  const added = foreign.map(({ license, purl, ...part }) => ({
    "bom-ref": purl,
    type: "application",
    ...part,
    purl,
    ...(license === undefined ? {} : { licenses: [{ license: { id: license } }] }),
  }));
  const content = {
    ...bom,
    metadata: {
      ...bom.metadata,
      timestamp: builtAt ?? undefined,
      // npm takes the name of the folder.
      component: { ...own, type: "application", name: "muster", version },
    },
    components: [...bom.components.filter((each) => kept.has(each["bom-ref"])), ...added],
    dependencies: bom.dependencies
      .filter(({ ref }) => kept.has(ref) || ref === own["bom-ref"])
      .map(({ dependsOn, ref }) => ({ ref, dependsOn: dependsOn.filter((each) => kept.has(each)) })),
    serialNumber: "",
  };
  return `${JSON.stringify({ ...content, serialNumber: serialNumber(JSON.stringify(content)) }, null, 2)}\n`;
}

/** A UUID from the content, in the form of version 8 (RFC 9562), since a random one would differ in each build. */
function serialNumber(content: string): string {
  const hash = createHash("sha256").update(content).digest("hex");
  const parts = [
    hash.slice(0, 8),
    hash.slice(8, 12),
    `8${hash.slice(13, 16)}`,
    `8${hash.slice(17, 20)}`,
    hash.slice(20, 32),
  ];
  return `urn:uuid:${parts.join("-")}`;
}
