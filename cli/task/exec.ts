/** `muster task exec`: runs a command in a running task, with its own input and output and, with -t, a terminal. */
import type { ReadStream } from "node:tty";
import { TaskExec, TaskExecAs, TaskExecIdentity, TaskTerminalSize, type TaskInput } from "../../proto/gen/messages.ts";
import { command } from "../command.ts";
import { findTask, withManager } from "../manager-client.ts";
import { newEnvironment } from "../service/environment.ts";
import { callTask } from "./call.ts";
import { CommandEnded, UserError } from "../../lib/user-error.ts";

/** Maximum input per message, in bytes. */
const inputBytesMax = 64 * 1024;
/** Added to a signal's number for the exit status, as in a shell. */
const signalBase = 128;

type Send = (input: Partial<TaskInput>) => Promise<void>;

export const exec = command({
  operands: "TASK COMMAND [ARG...]",
  min: 2,
  stopsAtOperand: true,
  summary: "Execute a command in a running task of a driver plugin; exits with the command's status.",
  options: {
    interactive: { type: "boolean", short: "i", help: "Keep standard input open" },
    tty: { type: "boolean", short: "t", help: "Allocate a pseudo-TTY" },
    user: {
      type: "string",
      short: "u",
      value: "USER",
      help: "Username or UID, with an optional :GROUP (default: the task's)",
    },
    env: { type: "string", multiple: true, short: "e", value: "NAME=VALUE", help: "Set environment variables" },
    "env-file": { type: "string", multiple: true, value: "FILE", help: "Read in a file of environment variables" },
    workdir: { type: "string", short: "w", value: "DIR", help: "Working directory inside the task" },
    privileged: { type: "boolean", help: "Give extended privileges to the command" },
  },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const [operand = "", ...words] = operands;
      const task = await findTask(client, operand);
      const tty = values.tty ?? false;
      const isInteractive = values.interactive ?? false;
      const terminal = process.stdin.isTTY ? process.stdin : null;
      if (tty && isInteractive && terminal === null) throw new UserError("the input device is not a TTY");
      const size = tty ? terminalSize() : null;
      const exec = TaskExec.create({ command: words, tty, size });
      const identity = TaskExecIdentity.create({
        user: values.user ?? "",
        env: newEnvironment(values),
        directory: values.workdir ?? "",
        privileged: values.privileged ?? false,
      });
      const differs =
        identity.user !== "" || identity.env.length > 0 || identity.directory !== "" || identity.privileged;
      const wanted = differs ? { execAs: TaskExecAs.create({ exec, identity }) } : { exec };
      const keyboard = new Keyboard(tty && isInteractive ? terminal : null);
      try {
        const end = await callTask(
          client.channel,
          { taskId: task.id, ...wanted },
          {
            onAnswer: ({ stderr, stdout }) =>
              (stdout.length > 0 ? shell.write(stdout, "out") : null) ??
              (stderr.length > 0 ? shell.write(stderr, "err") : null),
            onBegun: (send) => {
              if (tty) keyboard.followSize(send);
              if (isInteractive) keyboard.read(send);
              else void send({ close: true }).catch(() => {});
            },
          },
        );
        const status =
          end === null ? 1 : end.exitCode !== 0 || end.signal === 0 ? end.exitCode : signalBase + end.signal;
        if (status !== 0) throw new CommandEnded(status < 0 || status > 255 ? 255 : status);
      } finally {
        keyboard.restore();
      }
    }),
});

function terminalSize(): TaskTerminalSize | null {
  const { columns, rows } = process.stdout;
  return process.stdout.isTTY ? TaskTerminalSize.create({ width: columns, height: rows }) : null;
}

/** Reads typed or piped input, one chunk at a time. */
class Keyboard {
  readonly #terminal: ReadStream | null;
  #sending: Promise<void> = Promise.resolve();
  #stops: (() => void)[] = [];

  /** `terminal`: sends every key to the command, including Ctrl-C; null: no terminal. */
  constructor(terminal: ReadStream | null) {
    this.#terminal = terminal;
  }

  followSize(send: Send): void {
    const onResize = (): void => this.#send(send, { size: terminalSize() });
    process.stdout.on("resize", onResize);
    this.#stops.push(() => process.stdout.off("resize", onResize));
  }

  read(send: Send): void {
    const { stdin } = process;
    this.#terminal?.setRawMode(true);
    const onData = (data: Buffer): void => {
      // Pause until the command has received this chunk.
      stdin.pause();
      for (let at = 0; at < data.length; at += inputBytesMax)
        this.#send(send, { data: data.subarray(at, at + inputBytesMax) });
      void this.#sending.then(() => stdin.resume());
    };
    const onEnd = (): void => this.#send(send, { close: true });
    stdin.on("data", onData).on("end", onEnd);
    this.#stops.push(() => {
      stdin.off("data", onData).off("end", onEnd);
      stdin.destroy();
    });
  }

  restore(): void {
    for (const stop of this.#stops.splice(0)) stop();
    this.#terminal?.setRawMode(false);
  }

  /** Input that the command no longer accepts can be dropped: its end is on the way. */
  #send(send: Send, input: Partial<TaskInput>): void {
    this.#sending = this.#sending.then(() => send(input)).catch(() => {});
  }
}
