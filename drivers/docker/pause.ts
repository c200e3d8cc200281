/**
 * Builds the image of the container that holds a group's network: one file, a program that waits for SIGTERM or SIGINT and
 * exits. It is assembled below, since an image from elsewhere would need a registry, and a compiler's output could not be
 * reviewed. It makes four system calls, has no libraries and no data, and uses only its page tables.
 *
 * PS1: the process is pid 1 in its container. The kernel delivers to pid 1 only signals that it handles, but keeps blocked
 *      ones pending; so it blocks both signals and waits for pending ones.
 * PS2: orphans in its process namespace are reaped by the kernel, since it ignores SIGCHLD.
 */
import { createHash } from "node:crypto";

/** Path in the image. */
export const pausePath = "/pause";
const repository = "muster-pause";

/** Load address: the usual one for programs that are not relocatable. */
const base = 0x40_0000;
const elfHeaderSize = 64;
const programHeaderSize = 56;
const codeAt = elfHeaderSize + programHeaderSize;

const SIGINT = 2;
const SIGTERM = 15;
const SIGCHLD = 17;
/** Size of a signal set for rt_sigaction(2) and others, in bytes. */
const signalSetSize = 8;
/** The signals to wait for. */
const ends = (1 << (SIGINT - 1)) | (1 << (SIGTERM - 1));
/** struct sigaction: the handler SIG_IGN, no flags, no restorer, no mask. */
const ignore = [1, 0, 0, 0];

interface Architecture {
  /** `e_machine` in the ELF header. */
  readonly machine: number;
  /** Largest page size of its kernels, in bytes. */
  readonly pageSize: number;
  /** `at`: the addresses of the two data structures, which follow the code, and of the code. */
  code(at: { readonly ignore: number; readonly ends: number; readonly code: number }): Uint8Array;
}

function word(value: number): readonly number[] {
  return [value & 0xff, (value >>> 8) & 0xff, (value >>> 16) & 0xff, (value >>> 24) & 0xff];
}

/** System calls: number in eax, arguments in rdi, rsi, rdx, r10, result in eax. A 32-bit write clears the upper half. */
const amd64: Architecture = {
  machine: 62,
  pageSize: 0x1000,
  code(at) {
    const call = (number: number, ...load: (readonly number[])[]): readonly number[] => [
      // mov eax, number
      0xb8,
      ...word(number),
      ...load.flat(),
      // syscall
      0x0f,
      0x05,
    ];
    const edi = (value: number): readonly number[] => [0xbf, ...word(value)]; // mov edi, value
    const esi = (value: number): readonly number[] => [0xbe, ...word(value)]; // mov esi, value
    const noEdx = [0x31, 0xd2]; // xor edx, edx
    const r10d = (value: number): readonly number[] => [0x41, 0xba, ...word(value)]; // mov r10d, value
    const size = r10d(signalSetSize);
    const wait = [
      ...call(128, edi(at.ends), esi(0), noEdx, size), // rt_sigtimedwait(&ends, NULL, NULL, 8)
      // test eax, eax
      0x85,
      0xc0,
    ];
    return Uint8Array.from([
      ...call(13, edi(SIGCHLD), esi(at.ignore), noEdx, size), // rt_sigaction(SIGCHLD, &ignore, NULL, 8)
      ...call(14, edi(0), esi(at.ends), noEdx, size), // rt_sigprocmask(SIG_BLOCK, &ends, NULL, 8)
      ...wait,
      // js wait: interrupted by another signal
      0x78,
      0x100 - wait.length - 2,
      ...call(231, edi(0)), // exit_group(0)
    ]);
  },
};

/** System calls: number in x8, arguments in x0 to x3, result in x0. Each instruction is a word. */
const arm64: Architecture = {
  machine: 183,
  pageSize: 0x1_0000,
  code(at) {
    const words: number[] = [];
    const move = (register: number, value: number) => words.push(0xd280_0000 | (value << 5) | register); // movz x, #value
    const address = (register: number, to: number) => {
      // adr x, to: relative to the instruction; the lowest two bits are encoded separately.
      const distance = to - (at.code + 4 * words.length);
      words.push(0x1000_0000 | ((distance & 3) << 29) | ((distance >> 2) << 5) | register);
    };
    const call = (number: number) => {
      move(8, number);
      words.push(0xd400_0001); // svc #0
    };
    move(0, SIGCHLD);
    address(1, at.ignore);
    move(2, 0);
    move(3, signalSetSize);
    call(134); // rt_sigaction(SIGCHLD, &ignore, NULL, 8)
    move(0, 0);
    address(1, at.ends);
    move(2, 0);
    move(3, signalSetSize);
    call(135); // rt_sigprocmask(SIG_BLOCK, &ends, NULL, 8)
    const wait = words.length;
    address(0, at.ends);
    move(1, 0);
    move(2, 0);
    move(3, signalSetSize);
    call(137); // rt_sigtimedwait(&ends, NULL, NULL, 8)
    const back = (wait - words.length) & 0x3fff;
    words.push(0x37f8_0000 | (back << 5)); // tbnz w0, #31, wait: interrupted by another signal
    move(0, 0);
    call(94); // exit_group(0)
    return Uint8Array.from(words.flatMap(word));
  },
};

/** By the engine's name of the architecture. */
const architectures: Readonly<Record<string, Architecture>> = { amd64, arm64 };

/** A static ELF executable with one segment; null for an unsupported architecture. */
export function pauseProgram(name: string): Buffer | null {
  const architecture = architectures[name];
  if (architecture === undefined) return null;
  const { machine, pageSize } = architecture;
  const size = architecture.code({ ignore: 0, ends: 0, code: 0 }).length;
  const dataAt = Math.ceil((codeAt + size) / 8) * 8;
  const file = Buffer.alloc(dataAt + 8 * (ignore.length + 1));

  // The ELF header: 64 bits, little-endian, version 1, System V.
  file.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1, 0]);
  file.writeUInt16LE(2, 16); // e_type: executable
  file.writeUInt16LE(machine, 18); // e_machine
  file.writeUInt32LE(1, 20); // e_version
  file.writeBigUInt64LE(BigInt(base + codeAt), 24); // e_entry
  file.writeBigUInt64LE(BigInt(elfHeaderSize), 32); // e_phoff
  file.writeUInt16LE(elfHeaderSize, 52); // e_ehsize
  file.writeUInt16LE(programHeaderSize, 54); // e_phentsize
  file.writeUInt16LE(1, 56); // e_phnum

  // The only program header.
  file.writeUInt32LE(1, elfHeaderSize); // p_type: load
  file.writeUInt32LE(5, elfHeaderSize + 4); // p_flags: read, execute
  file.writeBigUInt64LE(BigInt(base), elfHeaderSize + 16); // p_vaddr; p_offset is 0
  file.writeBigUInt64LE(BigInt(base), elfHeaderSize + 24); // p_paddr
  file.writeBigUInt64LE(BigInt(file.length), elfHeaderSize + 32); // p_filesz
  file.writeBigUInt64LE(BigInt(file.length), elfHeaderSize + 40); // p_memsz
  file.writeBigUInt64LE(BigInt(pageSize), elfHeaderSize + 48); // p_align

  const endsAt = dataAt + 8 * ignore.length;
  file.set(architecture.code({ ignore: base + dataAt, ends: base + endsAt, code: base + codeAt }), codeAt);
  for (const [at, value] of ignore.entries()) file.writeBigUInt64LE(BigInt(value), dataAt + 8 * at);
  file.writeBigUInt64LE(BigInt(ends), endsAt);
  return file;
}

/** A tar archive (ustar) of one executable file; deterministic. */
function archiveOf(name: string, content: Buffer): Buffer {
  const block = 512;
  const header = Buffer.alloc(block);
  const octal = (value: number, length: number): string => `${value.toString(8).padStart(length - 1, "0")}\0`;
  header.write(name, 0);
  header.write(octal(0o555, 8), 100); // mode
  header.write(octal(0, 8), 108); // uid
  header.write(octal(0, 8), 116); // gid
  header.write(octal(content.length, 12), 124); // size
  header.write(octal(0, 12), 136); // time
  header.write("        ", 148); // the checksum field counts as spaces
  header.write("0", 156); // a file
  header.write("ustar\x0000", 257);
  header.write(
    `${octal(
      header.reduce((sum, byte) => sum + byte, 0),
      7,
    )} `,
    148,
  );
  const padding = Buffer.alloc((block - (content.length % block)) % block);
  return Buffer.concat([header, content, padding, Buffer.alloc(2 * block)]);
}

interface PauseImage {
  /** Different for each version of the program. */
  readonly name: string;
  readonly archive: Buffer;
}

/** `architecture`: the engine's name. Null: the operator must configure an image. */
export function pauseImage(architecture: string): PauseImage | null {
  const program = pauseProgram(architecture);
  if (program === null) return null;
  const version = createHash("sha256").update(program).digest("hex").slice(0, 12);
  return { name: `${repository}:${version}`, archive: archiveOf(pausePath.slice(1), program) };
}
