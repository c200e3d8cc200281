/** Names of processor architectures: Juju's (those of Debian), and the kernel's, which nodes report. */

/** Juju's name and the kernel's. */
const pairs = [
  ["amd64", "x86_64"],
  ["arm64", "aarch64"],
  ["armhf", "armv7l"],
  ["i386", "i686"],
  ["ppc64el", "ppc64le"],
] as const;

const toKernel = new Map<string, string>(pairs);
const toJuju = new Map<string, string>(pairs.map(([juju, kernel]) => [kernel, juju]));

/** Juju's name; architectures with the same name in both (`riscv64`, `s390x`) are unchanged. */
export function jujuArchitecture(name: string): string {
  return toJuju.get(name) ?? name;
}

/** The name that nodes report, for placement constraints. */
export function nodeArchitecture(name: string): string {
  return toKernel.get(name) ?? name;
}
