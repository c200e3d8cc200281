/** A duration in milliseconds in Docker's words and with its limits (HumanDuration of go-units): `3 minutes`. */
export function humanDuration(ms: number): string {
  const seconds = Math.floor(ms / 1_000);
  if (seconds < 1) return "Less than a second";
  if (seconds === 1) return "1 second";
  if (seconds < 60) return `${seconds} seconds`;
  const minutes = Math.floor(seconds / 60);
  if (minutes === 1) return "About a minute";
  if (minutes < 60) return `${minutes} minutes`;
  const hours = Math.round(seconds / 3_600);
  if (hours === 1) return "About an hour";
  if (hours < 48) return `${hours} hours`;
  if (hours < 24 * 14) return `${Math.floor(hours / 24)} days`;
  if (hours < 24 * 60) return `${Math.floor(hours / 24 / 7)} weeks`;
  if (hours < 24 * 365 * 2) return `${Math.floor(hours / 24 / 30)} months`;
  return `${Math.floor(seconds / 3_600 / 24 / 365)} years`;
}
