/**
 * `npm run package -- oci`: an image for managers and agents as a tar that `docker load` reads, and by its OCI layout also Podman,
 * skopeo and containerd. Made of Debian's packages and the single file, without an engine and without a registry of images. The same
 * commit and the same versions of Debian's packages give the same bytes. With MUSTER_IMAGE_BASE, the packages are those in that folder,
 * which `npm run package -- image-base` has downloaded, and nothing is fetched.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { UserError } from "../../lib/user-error.ts";
import { version } from "../../lib/version.ts";
import { buildInfo } from "./build-info.ts";
import { top } from "./bundle.ts";
import { architectures, builtAt } from "./debian.ts";
import { natsServer } from "./nats-server.ts";
import type { ForeignPart } from "./sbom.ts";

/** A shell, and the programs that agents and drivers run; with what they depend on. */
const wantedPackages = [
  "busybox-static",
  "dash",
  "libstdc++6",
  "perl-base",
  "util-linux",
  "mount",
  "iproute2",
  "nftables",
];
/** They only configure or install packages, which nothing does in the image. */
const unwantedPackages = new Set([
  "debianutils",
  "dpkg",
  "debconf",
  "cdebconf",
  "debconf-2.0",
  "libcap2-bin",
  "libpam-modules",
  "login",
]);
/** Not for a program that runs: documentation other than licences. */
const unwantedFolders = ["usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/bash-completion"];

/** The user of managers: a number of Debian's range for system users, which may differ from that of a Debian package. */
const user = { name: "muster", id: 800 };

const apt = (command: string, args: readonly string[], cwd?: string): string => {
  try {
    return execFileSync(command, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], cwd });
  } catch (error) {
    const { stderr } = error as { readonly stderr?: string };
    throw new UserError(
      `the image needs Debian's packages, but '${command} ${args[0] ?? ""}' failed: run 'apt-get update' on a Debian machine with network, and try again\n${stderr ?? ""}`,
      { cause: error },
    );
  }
};

/** Names of these packages and of those that they need. The first of alternatives counts. */
function packagesFor(wanted: readonly string[]): readonly string[] {
  const found = new Set<string>();
  let next = wanted;
  // One call for all that the packages of the call before need: each call reads apt's lists again, for a second.
  while (next.length > 0) {
    for (const name of next) found.add(name);
    const needed = new Set<string>();
    let skips = false;
    for (const line of apt("apt-cache", ["depends", "--important", ...next]).split("\n")) {
      const [, bar, name] = /^ ([ |])(?:Pre)?Depends: (\S+)$/.exec(line) ?? [];
      if (name === undefined) continue;
      // A virtual package, in angle brackets, is only the second choice.
      if (!skips && !name.startsWith("<") && !found.has(name) && !unwantedPackages.has(name)) needed.add(name);
      skips = bar === "|";
    }
    next = [...needed];
  }
  return [...found].toSorted();
}

/** Returns the folder `image-base` in `out` with the packages of Debian that an image contains, as it has downloaded them. */
export function downloadImageBase(out: string): string {
  const folder = join(out, "image-base");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  apt("apt-get", ["download", "-qq", ...packagesFor(wantedPackages)], folder);
  return folder;
}

function unpackDebian(work: string, root: string, architecture: string): readonly ForeignPart[] {
  const folder = process.env["MUSTER_IMAGE_BASE"] || downloadImageBase(work);
  return readdirSync(folder)
    .filter((name) => name.endsWith(".deb"))
    .toSorted()
    .map((name) => {
      const file = join(folder, name);
      const field = (key: string): string =>
        execFileSync("dpkg-deb", ["--field", file, key], { encoding: "utf8" }).trim();
      execFileSync("sh", [
        "-c",
        'dpkg-deb --fsys-tarfile "$0" | tar -x -C "$1" --no-same-owner --keep-directory-symlink',
        file,
        root,
      ]);
      const [packageName, packageVersion] = [field("Package"), field("Version")];
      const purl = `pkg:deb/debian/${packageName}@${encodeURIComponent(packageVersion)}?arch=${architecture}`;
      return { name: packageName, version: packageVersion, purl };
    });
}

const sha256 = (content: Buffer | string): string => createHash("sha256").update(content).digest("hex");

/** Returns the path of the tar, and what the image contains besides Muster. `singleFile`: the executable. */
export async function packOci(
  out: string,
  singleFile: string,
): Promise<{ readonly file: string; readonly parts: readonly ForeignPart[] }> {
  const architecture = architectures[process.arch];
  if (architecture === undefined) throw new UserError(`no Debian architecture is known for ${process.arch}`);
  const work = join(out, "oci");
  rmSync(work, { recursive: true, force: true });
  const [base, own, state, image] = ["base", "own", "state", "image"].map((name) => join(work, name)) as [
    string,
    string,
    string,
    string,
  ];
  for (const folder of [
    "usr/bin",
    "usr/sbin",
    "usr/lib",
    "usr/lib64",
    "etc",
    "dev",
    "proc",
    "sys",
    "run",
    "root",
    "var/lib",
  ])
    mkdirSync(join(base, folder), { recursive: true });
  mkdirSync(join(base, "tmp"));
  chmodSync(join(base, "tmp"), 0o1777);
  for (const folder of ["bin", "sbin", "lib", "lib64"]) symlinkSync(`usr/${folder}`, join(base, folder));
  const debian = unpackDebian(work, base, architecture);
  for (const folder of unwantedFolders) rmSync(join(base, folder), { recursive: true, force: true });
  // Licences stay, and links between the folders of packages that share one.
  const documents = join(base, "usr/share/doc");
  for (const entry of readdirSync(documents, { recursive: true, withFileTypes: true }))
    if (entry.isFile() && entry.name !== "copyright") rmSync(join(entry.parentPath, entry.name), { force: true });
  // busybox has the rest of what a shell needs; programs of packages come first.
  const busybox = join(base, "usr/bin/busybox");
  for (const path of execFileSync(busybox, ["--list-full"], { encoding: "utf8" }).trim().split("\n")) {
    const name = path.replace(/^.*\//, "");
    const isThere = ["usr/bin", "usr/sbin"].some((folder) => existsSync(join(base, folder, name)));
    if (!isThere) symlinkSync("busybox", join(base, "usr/bin", name));
  }
  const put = (path: string, text: string): void => {
    mkdirSync(dirname(join(base, path)), { recursive: true });
    writeFileSync(join(base, path), text);
  };
  const { id, name } = user;
  put(
    "etc/passwd",
    `root:x:0:0:root:/root:/bin/sh\n${name}:x:${id}:${id}::/var/lib/muster:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n`,
  );
  put("etc/group", `root:x:0:\n${name}:x:${id}:\nnogroup:x:65534:\n`);
  put("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n");

  mkdirSync(join(own, "usr/bin"), { recursive: true });
  mkdirSync(join(own, "usr/lib/muster"), { recursive: true });
  mkdirSync(join(own, "usr/share/doc/muster"), { recursive: true });
  copyFileSync(singleFile, join(own, "usr/bin/muster"));
  const nats = await natsServer();
  copyFileSync(nats.path, join(own, "usr/lib/muster/nats-server"));
  for (const path of ["usr/bin/muster", "usr/lib/muster/nats-server"]) chmodSync(join(own, path), 0o755);
  for (const driver of ["muster-driver-docker", "muster-driver-exec", "muster-dataplane-nft"])
    symlinkSync("../../bin/muster", join(own, "usr/lib/muster", driver));
  cpSync(join(top, "LICENSE"), join(own, "usr/share/doc/muster/LICENSE"));
  cpSync(join(dirname(singleFile), "muster-LICENSES.txt"), join(own, "usr/share/doc/muster/licences.txt"));
  chmodSync(join(own, "usr/share/doc/muster/licences.txt"), 0o644);

  // A new volume takes over the owner of the folder that it is mounted at.
  mkdirSync(join(state, "var/lib/muster"), { recursive: true });
  chmodSync(join(state, "var/lib/muster"), 0o700);

  const blobs = join(image, "blobs/sha256");
  mkdirSync(blobs, { recursive: true });
  const seconds = Math.floor(builtAt().getTime() / 1000);
  // No program in the image gives its user another one's permissions.
  const tar = (from: string, file: string, paths: readonly string[], owner = "0"): void =>
    void execFileSync("tar", [
      "--sort=name",
      "--format=gnu",
      "--numeric-owner",
      "--mode=u-s,g-s",
      `--mtime=@${seconds}`,
      `--owner=${owner}`,
      `--group=${owner}`,
      `--directory=${from}`,
      `--file=${file}`,
      "--create",
      ...paths,
    ]);
  const stored = (content: Buffer): { readonly digest: string; readonly size: number } => {
    const hash = sha256(content);
    writeFileSync(join(blobs, hash), content);
    return { digest: `sha256:${hash}`, size: content.length };
  };
  const layer = (from: string, paths: readonly string[], owner?: string) => {
    const draft = join(work, "layer.tar");
    tar(from, draft, paths, owner);
    const content = readFileSync(draft);
    const hash = sha256(content);
    renameSync(draft, join(blobs, hash));
    return { digest: `sha256:${hash}`, size: content.length };
  };
  const layers = [
    { ...layer(base, readdirSync(base).toSorted()), by: "Debian's packages" },
    { ...layer(state, ["var/lib/muster"], String(id)), by: "the folder of the state" },
    { ...layer(own, ["usr"]), by: "muster and nats-server" },
  ];

  const commit = buildInfo()?.commit;
  const created = builtAt().toISOString();
  const config = stored(
    Buffer.from(
      JSON.stringify({
        created,
        architecture,
        os: "linux",
        config: {
          User: name,
          Env: [
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "MUSTER_NATS_SERVER=/usr/lib/muster/nats-server",
            "MUSTER_DATA_DIR=/var/lib/muster",
            // For commands by `docker exec`.
            "MUSTER_HOST=unix:///var/lib/muster/control.sock",
          ],
          Entrypoint: ["muster"],
          Cmd: ["manager"],
          WorkingDir: "/",
          ExposedPorts: { "2377/tcp": {}, "2378/tcp": {}, "2379/tcp": {}, "2380/tcp": {} },
          Volumes: { "/var/lib/muster": {} },
          // A manager or agent ends in order at SIGTERM.
          StopSignal: "SIGTERM",
          Labels: {
            "org.opencontainers.image.title": "muster",
            "org.opencontainers.image.version": version,
            "org.opencontainers.image.licenses": "Apache-2.0",
            ...(commit === undefined ? {} : { "org.opencontainers.image.revision": commit }),
          },
        },
        rootfs: { type: "layers", diff_ids: layers.map(({ digest }) => digest) },
        history: layers.map(({ by }) => ({ created, created_by: by })),
      }),
    ),
  );
  const manifest = stored(
    Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: "application/vnd.oci.image.manifest.v1+json",
        config: { mediaType: "application/vnd.oci.image.config.v1+json", ...config },
        layers: layers.map(({ digest, size }) => ({
          mediaType: "application/vnd.oci.image.layer.v1.tar",
          digest,
          size,
        })),
      }),
    ),
  );
  const tag = `muster:${version}`;
  const write = (path: string, content: object): void => writeFileSync(join(image, path), JSON.stringify(content));
  write("oci-layout", { imageLayoutVersion: "1.0.0" });
  write("index.json", {
    schemaVersion: 2,
    mediaType: "application/vnd.oci.image.index.v1+json",
    manifests: [
      {
        mediaType: "application/vnd.oci.image.manifest.v1+json",
        ...manifest,
        platform: { architecture, os: "linux" },
        annotations: {
          "io.containerd.image.name": `docker.io/library/${tag}`,
          "org.opencontainers.image.ref.name": version,
        },
      },
    ],
  });
  // For engines that do not read OCI layouts: `docker load` before 25.0.
  const pathOf = (digest: string): string => `blobs/sha256/${digest.slice("sha256:".length)}`;
  write("manifest.json", [
    { Config: pathOf(config.digest), RepoTags: [tag], Layers: layers.map(({ digest }) => pathOf(digest)) },
  ] as unknown as object);
  const file = join(out, `muster-${version}-oci-${architecture}.tar`);
  tar(image, file, readdirSync(image).toSorted());
  rmSync(work, { recursive: true });
  return { file, parts: debian };
}
