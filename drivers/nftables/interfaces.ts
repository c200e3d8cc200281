/**
 * The host's interfaces as reported by `ip`: their names, whether they are up, and their addresses. Changes are reported as
 * they happen; everything is read again periodically, in case some were missed.
 */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { netText, parseNet } from "./addresses.ts";

interface InterfacesOptions {
  /** Interval of full reads, in milliseconds; 0: only at the start. */
  readonly pollMs: number;
  /** An interface was added, removed, or changed its state. */
  readonly onLink: (name: string) => void;
  /** An address was added or removed. */
  readonly onAddresses: () => void;
  readonly onProblem: (text: string) => void;
}

/** Delay before a watch that ended is restarted, in milliseconds. */
const watchRetryMs = 1_000;
/** Delay in milliseconds: addresses change in bursts. */
const settleMs = 50;
const listingBytesMax = 64 * 1024 * 1024;

/** `7: cali1@if2: <BROADCAST,UP,LOWER_UP> mtu 1500 … state UP …`, preceded by `Deleted` for a removed one. */
const linkLine = /^(Deleted )?\d+: ([^:@\s]+)(?:@[^:\s]+)?: <([^>]*)>.*? state (\S+)/;
const addressLine = /^\d+: (\S+)\s+inet6? (\S+)/;

export class Interfaces {
  readonly #options: InterfacesOptions;
  /** Interfaces by name: whether they are up. */
  #links = new Map<string, boolean>();
  /** Interfaces by address. */
  #addresses = new Map<string, string>();
  #watch: ChildProcess | null = null;
  #timers = new Set<NodeJS.Timeout>();
  #reading: NodeJS.Timeout | null = null;
  #isStopped = false;

  constructor(options: InterfacesOptions) {
    this.#options = options;
  }

  /** Resolves after the first full read. */
  async start(): Promise<void> {
    this.#follow();
    await Promise.all([this.#readLinks(), this.#readAddresses()]);
    if (this.#options.pollMs > 0) this.#after(this.#options.pollMs, () => this.#poll());
  }

  stop(): void {
    this.#isStopped = true;
    for (const timer of this.#timers) clearTimeout(timer);
    this.#watch?.kill();
  }

  isThere(name: string): boolean {
    return this.#links.has(name);
  }

  isUp(name: string): boolean {
    return this.#links.get(name) ?? false;
  }

  /** The interface that has one of the addresses, checked in order; null if none has. */
  withAddress(addresses: readonly string[]): string | null {
    for (const address of addresses) {
      const net = parseNet(address);
      const name = net === null ? undefined : this.#addresses.get(netText(net));
      if (name !== undefined) return name;
    }
    return null;
  }

  #after(ms: number, action: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      action();
    }, ms);
    this.#timers.add(timer);
  }

  #poll(): void {
    void Promise.all([this.#readLinks(), this.#readAddresses()]).then(() => {
      if (!this.#isStopped) this.#after(this.#options.pollMs, () => this.#poll());
    });
  }

  #follow(): void {
    if (this.#isStopped) return;
    const child = spawn("ip", ["-o", "monitor", "link", "address"], { stdio: ["ignore", "pipe", "ignore"] });
    this.#watch = child;
    child.on("error", (error) => this.#options.onProblem(`cannot watch interfaces: ${error.message}`));
    child.on("close", () => {
      if (!this.#isStopped) this.#after(watchRetryMs, () => this.#follow());
    });
    createInterface({ input: child.stdout }).on("line", (line) => this.#heard(line));
  }

  #heard(line: string): void {
    const link = linkLine.exec(line);
    if (link === null) {
      if (this.#reading === null && / inet6? /.test(line)) {
        this.#after(settleMs, () => {
          this.#reading = null;
          void this.#readAddresses();
        });
        this.#reading = [...this.#timers].at(-1) ?? null;
      }
      return;
    }
    const [, deleted, name, flags, state] = link as unknown as [string, string | undefined, string, string, string];
    // A renamed interface is reported only under its new name: a full read removes the old one.
    if (deleted === undefined && !this.#links.has(name)) void this.#readLinks();
    this.#set(name, deleted === undefined ? isCarrying(flags, state) : null);
  }

  #set(name: string, isUp: boolean | null): void {
    const before = this.#links.get(name) ?? null;
    if (before === isUp) return;
    if (isUp === null) this.#links.delete(name);
    else this.#links.set(name, isUp);
    this.#options.onLink(name);
  }

  async #readLinks(): Promise<void> {
    const lines = await this.#list("link");
    if (lines === null) return;
    const found = new Map<string, boolean>();
    for (const line of lines) {
      const link = linkLine.exec(line);
      if (link !== null) found.set(link[2] as string, isCarrying(link[3] as string, link[4] as string));
    }
    for (const name of this.#links.keys()) if (!found.has(name)) this.#set(name, null);
    for (const [name, isUp] of found) this.#set(name, isUp);
  }

  async #readAddresses(): Promise<void> {
    const lines = await this.#list("address");
    if (lines === null) return;
    const found = new Map<string, string>();
    for (const line of lines) {
      const match = addressLine.exec(line);
      const net = match === null ? null : parseNet((match[2] as string).replace(/\/.*/, ""));
      if (match !== null && net !== null) found.set(netText(net), (match[1] as string).replace(/@.*/, ""));
    }
    const isSame =
      found.size === this.#addresses.size &&
      [...found].every(([address, name]) => this.#addresses.get(address) === name);
    if (isSame) return;
    this.#addresses = found;
    this.#options.onAddresses();
  }

  #list(what: "link" | "address"): Promise<readonly string[] | null> {
    return new Promise((resolve) => {
      execFile("ip", ["-o", what, "show"], { maxBuffer: listingBytesMax }, (error, output) => {
        if (error !== null) this.#options.onProblem(`cannot list interfaces: ${error.message}`);
        resolve(error === null ? output.split("\n") : null);
      });
    });
  }
}

/** Some kinds of interface only ever report UNKNOWN. */
function isCarrying(flags: string, state: string): boolean {
  return state === "UP" || (state === "UNKNOWN" && flags.split(",").includes("UP"));
}
