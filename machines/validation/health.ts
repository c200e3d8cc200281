/** What the health check of a task that is no container may ask for. */
import type { Duration, HealthCheck } from "../../proto/gen/messages.ts";
import { durationMs } from "../../proto/time.ts";
import { invalid, type Refusal } from "../refusal.ts";

/** The shortest time of a container's check as well. */
const msMin = 1;
/** A check that is looked at less than once a day tells nothing, and a timer has an end. */
const msMax = 86_400_000;
const portMax = 65_535;
/** Of a path in bytes: more than servers take. */
const pathMax = 2_048;
/** Of a name in DNS, with a port. */
const hostMax = 260;

function wrong(text: string): Refusal {
  return invalid(`Generic runtime: health check: ${text}`);
}

function timeFlaw(name: string, duration: Duration | null): string | null {
  const ms = durationMs(duration, 0);
  if (ms < 0) return `${name} cannot be negative`;
  if (ms !== 0 && ms < msMin) return `${name} cannot be less than 1ms`;
  return ms > msMax ? `${name} cannot be more than 24h` : null;
}

function portFlaw(port: number): string | null {
  return port >= 1 && port <= portMax ? null : `port ${port} is not from 1 to ${portMax}`;
}

function httpFlaw({ host, path, port }: NonNullable<HealthCheck["http"]>): string | null {
  if (path !== "" && (path.length > pathMax || !/^\/[\u0021-\u007e]*$/.test(path)))
    return `path '${path.slice(0, 100)}' does not begin with a slash, has blanks or signs beyond ASCII, or is too long`;
  if (host.length > hostMax || !/^[A-Za-z0-9._:[\]-]*$/.test(host)) return `'${host.slice(0, 100)}' is no host`;
  return portFlaw(port);
}

export function checkHealthCheck(check: HealthCheck | null): Refusal | null {
  if (check === null) return null;
  const { command, http, interval, startInterval, startPeriod, tcp, timeout } = check;
  const kinds = [command.length > 0, http !== null, tcp !== null].filter(Boolean).length;
  if (kinds !== 1) return wrong("it has to name one of command, http and tcp");
  if (command[0] === "") return wrong("its command has no name");
  const flaw =
    (http === null ? null : httpFlaw(http)) ??
    (tcp === null ? null : portFlaw(tcp.port)) ??
    timeFlaw("interval", interval) ??
    timeFlaw("timeout", timeout) ??
    timeFlaw("start period", startPeriod) ??
    timeFlaw("start interval", startInterval);
  return flaw === null ? null : wrong(flaw);
}
