/**
 * Arguments of a process can be read by every user of its machine (`/proc/PID/cmdline`), and so by every task. Secrets belong in
 * files: `--token-file`, `--nats-password-file`, `--driver-config NAME=@FILE`. Where one stands in an argument all the same, it is
 * overwritten before anything else is done.
 */

/** Flags of long-running commands whose values may hold a secret. */
const secretFlags = ["--token", "--nats", "--driver-config"];

const hidden = "***";

/** The arguments with secrets replaced; null when there are none. */
export function withoutSecrets(args: readonly string[]): readonly string[] | null {
  const shown = args.map((arg, at) => {
    const flag = secretFlags.find((each) => arg.startsWith(`${each}=`));
    if (flag !== undefined) return shownValue(`${flag}=`, arg.slice(flag.length + 1));
    return at > 0 && secretFlags.includes(args[at - 1] as string) ? shownValue("", arg) : arg;
  });
  return shown.some((arg, at) => arg !== args[at]) ? shown : null;
}

/** Names of files, and addresses without credentials, are no secrets. */
function shownValue(before: string, value: string): string {
  const isFile = /^[A-Za-z0-9._-]+=@/.test(value);
  const isAddress = /^[^@{]*$/.test(value) && !value.startsWith("SWMTKN-");
  return before + (isFile || isAddress ? value : hidden);
}

/** Overwrites what the kernel shows of this process. The title takes the place of all arguments, whose memory is cleared. */
export function hideSecretArguments(): void {
  const args = withoutSecrets(process.argv.slice(2));
  if (args !== null) process.title = ["muster", ...args].join(" ");
}
