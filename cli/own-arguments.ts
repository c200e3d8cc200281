/**
 * Arguments of a process can be read by every user of its machine (`/proc/PID/cmdline`), and so by every task. Secrets belong in
 * files: `--token-file`, `--nats-password-file`, `--driver-config NAME=@FILE`. Where one stands in an argument all the same, it is
 * overwritten before anything else is done.
 */

/** Flags of long-running commands whose values may hold a secret, and which values of theirs hold none. */
const secretFlags: Readonly<Record<string, (value: string) => boolean>> = {
  "--token": () => false,
  // Addresses without credentials.
  "--nats": (value) => !value.includes("@"),
  // Names of files.
  "--driver-config": (value) => /^[A-Za-z0-9._-]+=@/.test(value),
};

const hidden = "***";

/** The arguments with secrets replaced; null when there are none. */
export function withoutSecrets(args: readonly string[]): readonly string[] | null {
  const shown = args.map((arg, at) => {
    for (const [flag, isPublic] of Object.entries(secretFlags)) {
      if (arg.startsWith(`${flag}=`)) return isPublic(arg.slice(flag.length + 1)) ? arg : `${flag}=${hidden}`;
      if (args[at - 1] === flag) return isPublic(arg) ? arg : hidden;
    }
    return arg;
  });
  return shown.some((arg, at) => arg !== args[at]) ? shown : null;
}

/** Overwrites what the kernel shows of this process. The title takes the place of all arguments, whose memory is cleared. */
export function hideSecretArguments(): void {
  const args = withoutSecrets(process.argv.slice(2));
  if (args !== null) process.title = ["muster", ...args].join(" ");
}
