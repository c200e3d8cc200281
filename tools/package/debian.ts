/**
 * `npm run package -- debian`: a Debian package of the single-file command and a current nats-server, with units of systemd,
 * manual pages, completion and configuration. The same commit gives the same bytes.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { gzipSync } from "node:zlib";
import { scripts } from "../../cli/completion/scripts.ts";
import { version } from "../../lib/version.ts";
import { buildInfo } from "./build-info.ts";
import { top } from "./bundle.ts";
import { filesBelow } from "./contents.ts";
import { manPages } from "./man-pages.ts";
import { natsServer } from "./nats-server.ts";

/** Debian's names of the architectures of Node. */
export const architectures: Readonly<Record<string, string>> = { x64: "amd64", arm64: "arm64" };

/** The time of the commit, so that a package does not depend on when it is built. */
export function builtAt(): Date {
  return new Date(buildInfo()?.date ?? 0);
}

/** Files that the administrator changes: an upgrade keeps them. */
const configuration = ["/etc/muster/manager.yaml", "/etc/muster/agent.yaml", "/etc/logrotate.d/muster"];

function control(architecture: string, kibibytes: number): string {
  const { description } = JSON.parse(readFileSync(join(top, "package.json"), "utf8")) as {
    readonly description: string;
  };
  return `Package: muster
Version: ${version}
Architecture: ${architecture}
Maintainer: Muster <muster@localhost>
Section: admin
Priority: optional
Installed-Size: ${kibibytes}
Depends: libc6 (>= 2.28), libgcc-s1, libstdc++6, passwd
Recommends: systemd (>= 251), perl-base, iproute2, nftables
Suggests: logrotate
Description: cluster orchestrator for containers and processes
 ${description}
 .
 The package has its own Node and its own nats-server. Nothing is started by its installation.
`;
}

const copyright = (
  natsVersion: string,
): string => `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: the authors of Muster
License: Apache-2.0

Files: usr/lib/muster/nats-server
Copyright: the NATS authors
License: Apache-2.0
Comment: nats-server ${natsVersion}, unchanged

License: Apache-2.0
 See /usr/share/common-licenses/Apache-2.0. The licences of Node and of the libraries in /usr/bin/muster are in licences.txt.gz.
`;

/** `singleFile`: the executable, with its licences beside it. Returns the path of the file. */
export async function packDebian(out: string, singleFile: string): Promise<string> {
  const architecture = architectures[process.arch];
  if (architecture === undefined) throw new Error(`no Debian architecture is known for ${process.arch}`);
  const root = join(out, "debian");
  rmSync(root, { recursive: true, force: true });
  const put = (path: string, content: string | Buffer, mode = 0o644): void => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), content);
    chmodSync(join(root, path), mode);
  };
  const copy = (from: string, path: string, mode?: number): void => put(path, readFileSync(join(top, from)), mode);
  /** Without a time in its header. */
  const putCompressed = (path: string, content: string | Buffer): void =>
    put(`${path}.gz`, gzipSync(content, { level: 9 }));

  const copyProgram = (from: string, path: string): void => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    copyFileSync(from, join(root, path));
    chmodSync(join(root, path), 0o755);
  };
  copyProgram(singleFile, "usr/bin/muster");
  putCompressed("usr/share/doc/muster/licences.txt", readFileSync(join(dirname(singleFile), "muster-LICENSES.txt")));
  const nats = await natsServer();
  copyProgram(nats.path, "usr/lib/muster/nats-server");
  for (const name of ["muster-driver-docker", "muster-driver-exec", "muster-dataplane-nft"])
    symlinkSync("../../bin/muster", join(root, "usr/lib/muster", name));

  for (const unit of ["manager", "agent"]) {
    copy(`deploy/systemd/muster-${unit}.service`, `usr/lib/systemd/system/muster-${unit}.service`);
    copy(`deploy/etc/${unit}.yaml`, `etc/muster/${unit}.yaml`);
    mkdirSync(join(root, "etc/muster/credentials", unit), { recursive: true });
    chmodSync(join(root, "etc/muster/credentials", unit), 0o700);
  }
  copy("deploy/debian/logrotate", "etc/logrotate.d/muster");
  for (const [shell, path] of Object.entries({
    bash: "usr/share/bash-completion/completions/muster",
    zsh: "usr/share/zsh/vendor-completions/_muster",
    fish: "usr/share/fish/vendor_completions.d/muster.fish",
  }))
    put(path, scripts[shell] ?? "");
  for (const [name, page] of await manPages(builtAt().toISOString(), version))
    putCompressed(`usr/share/man/man1/${name}`, page);
  putCompressed("usr/share/doc/muster/changelog", readFileSync(join(top, "CHANGELOG.md")));
  put("usr/share/doc/muster/copyright", copyright(nats.version));

  const files = filesBelow(root).toSorted();
  const bytes = files.reduce((sum, file) => sum + statSync(join(root, file)).size, 0);
  const sums = files.map(
    (file) =>
      `${createHash("md5")
        .update(readFileSync(join(root, file)))
        .digest("hex")}  ${file}\n`,
  );
  put("DEBIAN/control", control(architecture, Math.ceil(bytes / 1024)));
  put("DEBIAN/conffiles", configuration.map((path) => `${path}\n`).join(""));
  put("DEBIAN/md5sums", sums.join(""));
  for (const script of ["postinst", "prerm", "postrm"]) copy(`deploy/debian/${script}`, `DEBIAN/${script}`, 0o755);
  const file = join(out, `muster_${version}_${architecture}.deb`);
  // Level 1: half a minute less than the default, for 5 % more bytes. One thread, because the number of threads changes the result.
  execFileSync("dpkg-deb", ["--root-owner-group", "-Zxz", "-z1", "--threads-max=1", "--build", root, file], {
    env: { ...process.env, SOURCE_DATE_EPOCH: String(Math.floor(builtAt().getTime() / 1000)) },
    stdio: ["ignore", "ignore", 2],
  });
  rmSync(root, { recursive: true });
  return file;
}
