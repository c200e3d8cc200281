/** `muster swarm unlock`: unlocks a manager. The key is typed or piped in, never an argument. */
import { GetLockRequest, LockService, UnlockRequest } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { command, type Command } from "../command.ts";
import { contentFrom } from "../content.ts";
import { withManager } from "../manager-client.ts";
import type { Shell } from "../shell.ts";
import { UserError } from "../../lib/user-error.ts";

const methods = LockService.methods;
/** Maximum time from unlocking until the manager serves, in milliseconds; Docker waits 20 s. */
const readyTimeoutMs = 60_000;
const pollMs = 200;

const [enter, lineFeed, backspace, rubout, interrupt, endOfInput] = ["\r", "\n", "\b", "\u007f", "\u0003", "\u0004"];

/** Reads a line from the terminal without echo. */
async function typed(shell: Shell, prompt: string): Promise<string> {
  await shell.write(new TextEncoder().encode(prompt), "err");
  const { stdin } = process;
  stdin.setRawMode(true);
  try {
    let line = "";
    for await (const chunk of stdin) {
      for (const character of String(chunk)) {
        if (character === enter || character === lineFeed || character === endOfInput) return line;
        if (character === interrupt) throw new UserError("interrupted");
        line = character === backspace || character === rubout ? line.slice(0, -1) : line + character;
      }
    }
    return line;
  } finally {
    stdin.setRawMode(false);
    await shell.write(new TextEncoder().encode("\n"), "err");
  }
}

async function keyFrom(shell: Shell): Promise<string> {
  const text = process.stdin.isTTY
    ? await typed(shell, "Enter unlock key: ")
    : (new TextDecoder().decode(contentFrom("-")).split("\n")[0] ?? "");
  const key = text.trim();
  if (key === "") throw new UserError("no unlock key: type it at the prompt, or pipe it in");
  return key;
}

/** An unlocked manager starts up; nobody answers until it serves. */
async function untilServing(shell: Shell): Promise<void> {
  const deadline = shell.now() + readyTimeoutMs;
  while (shell.now() < deadline) {
    try {
      const { locked } = await withManager(shell, (client) => client.call(methods.GetLock, GetLockRequest.create({})));
      if (!locked) return;
    } catch (error) {
      if (!(error instanceof UserError || error instanceof RpcError)) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
  throw new UserError("the manager is unlocked but does not serve yet: check its log");
}

export const unlock: Command = command({
  summary: "Unlock a restarted manager; the key is prompted for, or read from standard input.",
  options: {},
  run: async ({ shell }) => {
    await withManager(shell, async (client) => {
      const { locked } = await client.call(methods.GetLock, GetLockRequest.create({}));
      if (!locked) throw new UserError("this manager is not locked");
      const unlockKey = await keyFrom(shell);
      try {
        await client.call(methods.Unlock, UnlockRequest.create({ unlockKey }));
      } catch (error) {
        if (!(error instanceof RpcError)) throw error;
        const isKnown = error.code === Status.PERMISSION_DENIED || error.code === Status.INVALID_ARGUMENT;
        throw isKnown ? new UserError(error.message, { cause: error }) : error;
      }
    });
    await untilServing(shell);
  },
});
