/** What a command is given of the world: where its output goes, what time it is, and a connection to a manager. */
import { userInfo } from "node:os";
import { connectUnix } from "../edges/grpc/client-channel.ts";
import type { CallingProcess, RpcChannel } from "../runtime/rpc.ts";
import { chosenHost, remoteContextOf } from "./contexts.ts";
import { answers, knownHosts } from "./last-host.ts";
import { UserError } from "./user-error.ts";

export interface Shell {
  /** One line, or several, to standard output. */
  print(text: string): void;
  /** Bytes as they are, to standard output or standard error. Null when more may follow at once, else when it may. */
  write(data: Uint8Array, to: "out" | "err"): Promise<void> | null;
  /** Progress and remarks, to standard error. */
  remark(text: string): void;
  /** True where standard error is a terminal that can be drawn on. */
  readonly isInteractive: boolean;
  /** Columns of the terminal that standard output is; absent or null where it is none. */
  readonly width?: number | null;
  /** Milliseconds since the epoch. */
  now(): number;
  /** Connects to the manager that was chosen. Rejects with UserError when nobody is there. */
  connect(): Promise<RpcChannel>;
  /** The same shell with another manager. */
  at(host: string): Shell;
}

/** Empty where the system knows no name for this user. */
function loginName(): string {
  try {
    return userInfo().username;
  } catch {
    return "";
  }
}

/** Who we say we are: under sudo, who called that. */
function thisProcess(): CallingProcess {
  const uid = process.getuid?.() ?? 0;
  const sudoer = process.env["SUDO_USER"] ?? "";
  return { uid, pid: process.pid, user: sudoer !== "" ? sudoer : loginName() };
}

/** `unix:///path`, or a path. Throws UserError. */
export function socketPath(host: string): string {
  if (host.startsWith("unix://")) return host.slice("unix://".length);
  if (host.startsWith("/") || host.startsWith("./") || host.startsWith("../")) return host;
  const isRemote = host.startsWith("tcp://");
  const how = isRemote
    ? "a manager on another machine is named by a context: see 'muster context create --help'"
    : "write unix:///PATH/control.sock";
  throw new UserError(`'${host}' is not a control socket: ${how}`);
}

/** Those of these managers that run. */
async function running(hosts: readonly string[]): Promise<readonly string[]> {
  const live = await Promise.all(hosts.map(answers));
  return hosts.filter((_, at) => live[at] === true);
}

/** How to choose among several clusters on one machine. */
function choice(others: readonly string[]): string {
  return `Choose with --host ${others.join(" or ")}, or with 'muster context use'`;
}

/** COLUMNS counts before what the terminal says, as for other programs; what is piped has no width. */
function terminalWidth(): number | null {
  if (!process.stdout.isTTY) return null;
  const said = Number(process.env["COLUMNS"] ?? "");
  if (Number.isInteger(said) && said > 0) return said;
  return process.stdout.columns > 0 ? process.stdout.columns : null;
}

/** `given`: what the command line names; null: the environment, the context in use, or the manager started last decides. */
export function processShell(given: string | null = null): Shell {
  return {
    print: (text) => void process.stdout.write(`${text}\n`),
    write: (data, to) => {
      const stream = to === "out" ? process.stdout : process.stderr;
      return stream.write(data) ? null : new Promise((resolve) => stream.once("drain", resolve));
    },
    remark: (text) => void process.stderr.write(`${text}\n`),
    isInteractive: process.stderr.isTTY,
    width: terminalWidth(),
    now: () => Date.now(),
    async connect() {
      const named = given ?? chosenHost();
      const hosts = named === null ? knownHosts() : [];
      const [host = named] = hosts;
      if (host === null) {
        throw new UserError(
          "no manager is known on this machine: start one with 'muster up', or name its control socket with --host",
        );
      }
      const remote = remoteContextOf(host);
      if (remote !== null) {
        // TLS is loaded where it is used: other commands are spared it.
        const { connectRemote } = await import("./remote/connect.ts");
        return connectRemote(remote.name, remote.context, Date.now());
      }
      const path = socketPath(host);
      const others = await running(hosts.slice(1));
      try {
        const channel = await connectUnix(path, thisProcess());
        if (others.length > 0)
          this.remark(
            `note: ${others.length + 1} clusters run here; ${host}, started last, answers. ${choice(others)}`,
          );
        return channel;
      } catch (error) {
        const beside = others.length === 0 ? "" : `. Another cluster runs here. ${choice(others)}`;
        throw new UserError(`no manager answers on ${path}: is 'muster up' or 'muster manager' running?${beside}`, {
          cause: error,
        });
      }
    },
    at: (other) => processShell(other),
  };
}
