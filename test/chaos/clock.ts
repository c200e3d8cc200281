/**
 * Steps the wall clock of one running process. Namespaces give a process its own monotonic clock but not its own wall clock,
 * and Go programs ignore a preloaded library; but both libc and Go read the time through the page of code that the kernel maps
 * into each process (the vDSO). Each process has its own copy: its three time functions are overwritten with code that asks the
 * kernel and adds an offset. The monotonic clock does not change.
 */
import { closeSync, openSync, readdirSync, readFileSync, readSync, writeSync } from "node:fs";
import { until } from "../fixtures/until.ts";

/** Why clocks cannot be stepped here; null if they can. */
export function clockMissing(): string | null {
  return process.arch === "x64" ? null : `is written for x64, not for ${process.arch}`;
}

interface Vdso {
  readonly start: number;
  readonly end: number;
}

/** x64 system call numbers. */
const callClockGettime = 228;
const callGettimeofday = 96;
const callTime = 201;
/** Address of the offset, relative to clock_gettime: after the code written there, aligned. */
const offsetAt = 0x40;

/** Sets how many seconds the process's wall clock is ahead of the machine's; negative: behind. */
export async function setClock(pid: number, seconds: number): Promise<void> {
  const vdso = vdsoOf(pid);
  const memory = openSync(`/proc/${pid}/mem`, "r+");
  try {
    const symbols = symbolsOf(read(memory, vdso.start, vdso.end - vdso.start));
    const at = (name: string): number => {
      const value = symbols.get(name);
      if (value === undefined) throw new Error(`the vDSO does not export ${name}`);
      return vdso.start + value;
    };
    const offset = at("__vdso_clock_gettime") + offsetAt;
    const written = Buffer.alloc(8);
    written.writeBigInt64LE(BigInt(Math.round(seconds)));
    process.kill(pid, "SIGSTOP");
    try {
      // A thread inside a function must leave it before it is overwritten.
      await until(`the threads of ${pid} to leave the vDSO`, () => {
        if (countersOf(pid).every((counter) => counter !== null && (counter < vdso.start || counter >= vdso.end)))
          return true;
        process.kill(pid, "SIGCONT");
        process.kill(pid, "SIGSTOP");
        return false;
      });
      writeSync(memory, written, 0, written.length, offset);
      for (const [name, code] of [
        ["__vdso_clock_gettime", clockGettime],
        ["__vdso_gettimeofday", gettimeofday],
        ["__vdso_time", time],
      ] as const) {
        const bytes = code(at(name), offset);
        writeSync(memory, bytes, 0, bytes.length, at(name));
      }
    } finally {
      process.kill(pid, "SIGCONT");
    }
  } finally {
    closeSync(memory);
  }
}

/** `mov eax, number; syscall` */
const ask = (number: number): readonly number[] => [0xb8, number, 0, 0, 0, 0x0f, 0x05];
/** `mov rcx, [rip + distance]`, for an instruction that ends `length` bytes after `at`. */
function load(at: number, length: number, offset: number): readonly number[] {
  const distance = Buffer.alloc(4);
  distance.writeInt32LE(offset - (at + length));
  return [0x48, 0x8b, 0x0d, ...distance];
}

/** Adds the offset to the seconds of the wall clock (0) and its coarse form (5). */
function clockGettime(at: number, offset: number): Buffer {
  const head = [...ask(callClockGettime), 0x85, 0xff, 0x74, 0x05, 0x83, 0xff, 0x05, 0x75, 0x0a];
  return Buffer.from([...head, ...load(at, head.length + 7, offset), 0x48, 0x01, 0x0e, 0xc3]);
}

/** The caller may pass no timeval, only a time zone. */
function gettimeofday(at: number, offset: number): Buffer {
  const head = [...ask(callGettimeofday), 0x48, 0x85, 0xff, 0x74, 0x0a];
  return Buffer.from([...head, ...load(at, head.length + 7, offset), 0x48, 0x01, 0x0f, 0xc3]);
}

/** Returns the time, and stores it if the caller passes a pointer. */
function time(at: number, offset: number): Buffer {
  const head = ask(callTime);
  const tail = [0x48, 0x01, 0xc8, 0x48, 0x85, 0xff, 0x74, 0x03, 0x48, 0x89, 0x07, 0xc3];
  return Buffer.from([...head, ...load(at, head.length + 7, offset), ...tail]);
}

function vdsoOf(pid: number): Vdso {
  const line = readFileSync(`/proc/${pid}/maps`, "utf8")
    .split("\n")
    .find((each) => each.endsWith("[vdso]"));
  const [, start = "", end = ""] = /^([0-9a-f]+)-([0-9a-f]+) /.exec(line ?? "") ?? [];
  if (start === "") throw new Error(`process ${pid} has no vDSO`);
  return { start: Number.parseInt(start, 16), end: Number.parseInt(end, 16) };
}

/** Instruction pointer of each thread; null for one that has not stopped yet. */
function countersOf(pid: number): readonly (number | null)[] {
  return readdirSync(`/proc/${pid}/task`).map((thread) => {
    const words = readFileSync(`/proc/${pid}/task/${thread}/syscall`, "utf8").trim().split(" ");
    return words[0] === "running" ? null : Number.parseInt(words.at(-1) ?? "", 16);
  });
}

function read(memory: number, at: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  readSync(memory, bytes, 0, length, at);
  return bytes;
}

/** Names and addresses of an ELF image's exports, from its dynamic section. */
function symbolsOf(image: Buffer): ReadonlyMap<string, number> {
  const number = (at: number): number => Number(image.readBigUInt64LE(at));
  const headers = number(0x20);
  let dynamic = 0;
  for (let n = 0; n < image.readUInt16LE(0x38); n += 1) {
    const header = headers + n * image.readUInt16LE(0x36);
    // PT_DYNAMIC; the image is mapped with the layout of the file.
    if (image.readUInt32LE(header) === 2) dynamic = number(header + 8);
  }
  const tags = new Map<number, number>();
  for (let at = dynamic; number(at) !== 0; at += 16) tags.set(number(at), number(at + 8));
  // DT_HASH has the number of symbols, DT_STRTAB the address of their names, DT_SYMTAB their own address.
  const [hash = 0, names = 0, symbols = 0] = [4, 5, 6].map((tag) => tags.get(tag));
  const found = new Map<string, number>();
  for (let n = 0; n < image.readUInt32LE(hash + 4); n += 1) {
    const symbol = symbols + n * 24;
    const name = names + image.readUInt32LE(symbol);
    found.set(image.toString("latin1", name, image.indexOf(0, name)), number(symbol + 8));
  }
  return found;
}
