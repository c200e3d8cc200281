/** Names of processor architectures: Juju's (Debian's), and those that nodes tell of themselves (the kernel's). */

/** Juju's name, the kernel's. */
const pairs = [
  ["amd64", "x86_64"],
  ["arm64", "aarch64"],
  ["armhf", "armv7l"],
  ["i386", "i686"],
  ["ppc64el", "ppc64le"],
] as const;

const toKernel = new Map<string, string>(pairs);
const toJuju = new Map<string, string>(pairs.map(([juju, kernel]) => [kernel, juju]));

/** As Juju's clients know it; what has no other name there (`riscv64`, `s390x`) stays. */
export function jujuArchitecture(name: string): string {
  return toJuju.get(name) ?? name;
}

/** As nodes tell it, which is what placement constraints are compared with. */
export function nodeArchitecture(name: string): string {
  return toKernel.get(name) ?? name;
}
