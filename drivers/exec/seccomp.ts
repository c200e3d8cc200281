/**
 * The system calls that a task may make: a BPF program, which the kernel runs before each call.
 *
 * SC1: a call unknown to the profile fails as in a kernel without it (ENOSYS), so that a newer kernel gives no task more than
 *      was considered here.
 * SC2: a call of another architecture, where the numbers have other meanings, kills the process.
 */

/** An instruction in the kernel's format: code, jumps, operand. */
type Instruction = readonly [code: number, jumpTrue: number, jumpFalse: number, operand: number];

const loadWord = 0x20;
const jumpEqual = 0x15;
const jumpAtLeast = 0x35;
const jumpAnyBit = 0x45;
const answer = 0x06;

/** Offsets in the program's input: number, architecture, then the arguments. */
const place = { number: 0, architecture: 4, argument0: 16 };

const verdict = { kill: 0x8000_0000, errno: 0x0005_0000, allow: 0x7fff_0000 };
const errno = { EPERM: 1, ENOSYS: 38 };

/** Flags of `clone` that create namespaces, without those of the exit signal: user, mount, UTS, IPC, PID, network, cgroup. */
const namespaceFlags = 0x7e02_0000;

/** The newest call that was considered: removexattrat of Linux 6.13. SC1 */
const newest = 466;

interface Architecture {
  /** The kernel's AUDIT_ARCH. */
  readonly audit: number;
  readonly clone: number;
  readonly clone3: number;
  /** Refused calls, by the capability that permits them; empty: none does. */
  readonly refused: Readonly<Record<string, readonly number[]>>;
}

/** Newer calls have the same number on every processor: open_tree to fspick, mount_setattr, statmount and listmount. */
const newMounts = [428, 429, 430, 431, 432, 433, 442, 457, 458];
const ioUring = [425, 426, 427];

/**
 * The calls that Docker's default profile refuses, in its groups: mounts and namespaces, kernel modules, reboot, clocks, raw
 * ports, kernel tracing, keyrings (which have no namespace), handles of files outside, swap, io_uring.
 */
const architectures: Readonly<Record<string, Architecture>> = {
  x64: {
    audit: 0xc000_003e,
    clone: 56,
    clone3: 435,
    refused: {
      // mount umount2 pivot_root setns unshare quotactl quotactl_fd perf_event_open bpf fanotify_init lookup_dcookie swapon swapoff
      SYS_ADMIN: [165, 166, 155, 308, 272, 179, 443, 298, 321, 300, 212, 167, 168, ...newMounts],
      // create_module init_module delete_module get_kernel_syms query_module finit_module
      SYS_MODULE: [174, 175, 176, 177, 178, 313],
      // reboot kexec_load kexec_file_load
      SYS_BOOT: [169, 246, 320],
      // settimeofday clock_settime
      SYS_TIME: [164, 227],
      // iopl ioperm
      SYS_RAWIO: [172, 173],
      // kcmp pidfd_getfd process_madvise
      SYS_PTRACE: [312, 438, 440],
      // acct
      SYS_PACCT: [163],
      // open_by_handle_at
      DAC_READ_SEARCH: [304],
      // syslog
      SYSLOG: [103],
      // mbind set_mempolicy get_mempolicy migrate_pages move_pages set_mempolicy_home_node
      SYS_NICE: [237, 238, 239, 256, 279, 450],
      // add_key request_key keyctl userfaultfd uselib ustat sysfs _sysctl nfsservctl vhangup
      "": [248, 249, 250, 323, 134, 136, 139, 156, 180, 153, ...ioUring],
    },
  },
  arm64: {
    audit: 0xc000_00b7,
    clone: 220,
    clone3: 435,
    refused: {
      SYS_ADMIN: [40, 39, 41, 268, 97, 60, 443, 241, 280, 262, 18, 224, 225, ...newMounts],
      SYS_MODULE: [105, 106, 273],
      SYS_BOOT: [142, 104, 294],
      SYS_TIME: [170, 112],
      SYS_PTRACE: [272, 438, 440],
      SYS_PACCT: [89],
      DAC_READ_SEARCH: [265],
      SYSLOG: [116],
      SYS_NICE: [235, 237, 236, 238, 239, 450],
      "": [217, 218, 219, 282, 42, 58, ...ioUring],
    },
  },
};

/** Whether there is a profile for a processor, by Node's name for it. */
export function hasSeccompProfile(architecture: string): boolean {
  return architectures[architecture] !== undefined;
}

const jumpOver = (code: number, operand: number): Instruction => [code, 0, 1, operand];
const refuse = (number: number): Instruction => [answer, 0, 0, verdict.errno + number];

/** The program in the kernel's format. `capabilities`: the task's. Throws for a processor without a profile. */
export function seccompProgram(architecture: string, capabilities: readonly string[]): Uint8Array {
  const of = architectures[architecture];
  if (of === undefined) throw new Error(`no seccomp profile for ${architecture} processors`);
  const refused = Object.entries(of.refused).flatMap(([lifts, calls]) => (capabilities.includes(lifts) ? [] : calls));
  const isAdmin = capabilities.includes("SYS_ADMIN");
  const program: readonly Instruction[] = [
    [loadWord, 0, 0, place.architecture],
    [jumpEqual, 1, 0, of.audit],
    [answer, 0, 0, verdict.kill], // SC2
    [loadWord, 0, 0, place.number],
    jumpOver(jumpAtLeast, newest + 1), // SC1, and the calls of x32, which have a high bit
    refuse(errno.ENOSYS),
    ...refused.flatMap((call) => [jumpOver(jumpEqual, call), refuse(errno.EPERM)]),
    ...(isAdmin
      ? []
      : [
          // Its flags are in memory, which a filter cannot read: libraries fall back to `clone`.
          jumpOver(jumpEqual, of.clone3),
          refuse(errno.ENOSYS),
          [jumpEqual, 0, 3, of.clone] as const,
          [loadWord, 0, 0, place.argument0] as const,
          jumpOver(jumpAnyBit, namespaceFlags),
          refuse(errno.EPERM),
        ]),
    [answer, 0, 0, verdict.allow],
  ];
  const bytes = Buffer.alloc(program.length * 8);
  program.forEach(([code, jumpTrue, jumpFalse, operand], at) => {
    bytes.writeUInt16LE(code, at * 8);
    bytes.writeUInt8(jumpTrue, at * 8 + 2);
    bytes.writeUInt8(jumpFalse, at * 8 + 3);
    bytes.writeUInt32LE(operand, at * 8 + 4);
  });
  return bytes;
}
