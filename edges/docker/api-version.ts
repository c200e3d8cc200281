/** Versions of the Engine API. */

/** The newest that is served: Docker Engine 29.x. */
export const newestVersion = "1.55";
/** The oldest: engines since 25.0 serve nothing older. */
export const oldestVersion = "1.24";

function parts(version: string): readonly [number, number] {
  const [major = "0", minor = "0"] = version.split(".");
  return [Number(major), Number(minor)];
}

/** Whether `version` is older than `than`. */
export function isOlder(version: string, than: string): boolean {
  const [major, minor] = parts(version);
  const [otherMajor, otherMinor] = parts(than);
  return major === otherMajor ? minor < otherMinor : major < otherMajor;
}
