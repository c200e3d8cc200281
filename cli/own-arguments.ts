/**
 * Every user of a machine, and so every task, can read a process's arguments (`/proc/PID/cmdline`). Secrets belong in files:
 * `--token-file`, `--nats-password-file`, `--driver-config NAME=@FILE`. A secret that is given as an argument anyway is
 * overwritten first of all.
 */

/** Flags of long-running commands whose values may contain a secret, each with a test for values that contain none. */
const secretFlags: Readonly<Record<string, (value: string) => boolean>> = {
  "--token": () => false,
  "--nats": (value) => !value.includes("@"),
  "--driver-config": (value) => /^[A-Za-z0-9._-]+=@/.test(value),
};

const hidden = "***";

/** The arguments with secrets replaced; null when there are no secrets. */
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

/**
 * Overwrites the arguments that the kernel shows for this process. The title replaces all arguments, and their memory is
 * cleared.
 */
export function hideSecretArguments(): void {
  const args = withoutSecrets(process.argv.slice(2));
  if (args !== null) process.title = ["muster", ...args].join(" ");
}
