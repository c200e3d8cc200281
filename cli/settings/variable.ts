/** The environment variable that sets a flag. */
export function variableOf(flag: string): string {
  return `MUSTER_${flag.toUpperCase().replaceAll("-", "_")}`;
}
