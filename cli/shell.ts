/** A command's environment: output, clock, and a connection to a manager. */
import { userInfo } from "node:os";
import { connectUnix } from "../edges/grpc/client-channel.ts";
import type { CallingProcess, RpcChannel } from "../runtime/ports/rpc.ts";
import { chosenHost, remoteContextOf } from "./contexts.ts";
import { answers, knownHosts } from "../processes/last-host.ts";
import { UserError } from "../lib/user-error.ts";

/** The terminal of standard output. */
export interface Screen {
  readonly columns: number;
  readonly rows: number;
  /** False when NO_COLOR is set (https://no-color.org), or the terminal is a dumb one. */
  readonly colours: boolean;
}

export interface Shell {
  /** Writes lines to standard output. */
  print(text: string): void;
  /**
   * Writes raw bytes to standard output or standard error. Null when more can be written at once, else a promise of when it
   * can.
   */
  write(data: Uint8Array, to: "out" | "err"): Promise<void> | null;
  /** Writes progress and remarks to standard error. */
  remark(text: string): void;
  /** Whether standard error is a terminal. */
  readonly isInteractive: boolean;
  /** Width of standard output's terminal in columns; absent or null without one. */
  readonly width?: number | null;
  /** The manager that the command line names; null or absent: none. */
  readonly host?: string | null;
  /** The current state of standard output's terminal; absent or null without one. */
  readonly screen?: () => Screen | null;
  /** Milliseconds since the epoch. */
  now(): number;
  /** Connects to the chosen manager. Rejects with UserError when it does not answer. */
  connect(): Promise<RpcChannel>;
  /** The same shell for another manager. */
  at(host: string): Shell;
}

/** Empty when the system has no name for this user. */
function loginName(): string {
  try {
    return userInfo().username;
  } catch {
    return "";
  }
}

/** The calling process as reported to the manager; under sudo, the original user. */
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
    ? "to use a manager on another machine, create a context (see 'muster context create --help')"
    : "expected unix:///PATH/control.sock";
  throw new UserError(`invalid host "${host}": ${how}`);
}

const startAgain = "Start it with 'muster up', 'muster manager' or 'systemctl start muster-manager'";

/** Why a control socket did not accept a connection, and what to do. */
function whyUnconnected(path: string, error: unknown): string {
  const { cause, message } = error as Error;
  switch ((cause as NodeJS.ErrnoException | undefined)?.code) {
    case "ENOENT":
    case "ENOTDIR":
      return `no such socket, so no manager is running there. ${startAgain}, or name another socket with --host`;
    case "EACCES":
      return (
        "permission denied: only root and the user of the manager's process may open it. Run the command as one of them, or " +
        "log in as a user of the cluster (see 'muster context create --help')"
      );
    case "ECONNREFUSED":
      return `connection refused: its manager has stopped, or is still starting, as its log says. ${startAgain}`;
    default:
      return message.replace(`cannot connect to ${path}: `, "");
  }
}

/** The managers among `hosts` that are running. */
async function running(hosts: readonly string[]): Promise<readonly string[]> {
  const live = await Promise.all(hosts.map(answers));
  return hosts.filter((_, at) => live[at] === true);
}

/** How to choose among several clusters on one machine. */
function choice(others: readonly string[]): string {
  return `Choose with --host ${others.join(" or ")}, or with 'muster context use'`;
}

/** COLUMNS overrides the terminal's width, as in other programs; piped output has no width. */
function terminalWidth(): number | null {
  if (!process.stdout.isTTY) return null;
  const columns = Number(process.env["COLUMNS"] ?? "");
  if (Number.isInteger(columns) && columns > 0) return columns;
  return process.stdout.columns > 0 ? process.stdout.columns : null;
}

/** The size of a terminal that does not report it. */
const columnsDefault = 80;
const rowsDefault = 24;

function terminalScreen(): Screen | null {
  if (!process.stdout.isTTY) return null;
  return {
    columns: terminalWidth() ?? columnsDefault,
    rows: process.stdout.rows > 0 ? process.stdout.rows : rowsDefault,
    colours: (process.env["NO_COLOR"] ?? "") === "" && process.env["TERM"] !== "dumb",
  };
}

/** `given`: the command line's choice; null: the environment, the current context, or the manager started last. */
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
    host: given,
    screen: terminalScreen,
    now: () => Date.now(),
    async connect() {
      const named = given ?? chosenHost();
      const hosts = named === null ? knownHosts() : [];
      const [host = named] = hosts;
      if (host === null) {
        throw new UserError(
          "found no manager on this machine: start one with 'muster up', or set --host to its control socket",
        );
      }
      const remote = remoteContextOf(host);
      if (remote !== null) {
        // Loaded only here: other commands start faster.
        const { connectRemote } = await import("./remote/connect.ts");
        return connectRemote(remote.name, remote.context, Date.now());
      }
      const path = socketPath(host);
      const others = await running(hosts.slice(1));
      try {
        const channel = await connectUnix(path, thisProcess());
        if (others.length > 0)
          this.remark(
            `note: ${others.length + 1} clusters run on this machine; using the one started last, ${host}. ${choice(others)}`,
          );
        return channel;
      } catch (error) {
        const beside = others.length === 0 ? "" : `. Another cluster is running on this machine. ${choice(others)}`;
        const why = whyUnconnected(path, error);
        throw new UserError(`cannot connect to the manager at ${path}: ${why}${beside}`, { cause: error });
      }
    },
    at: (other) => processShell(other),
  };
}
