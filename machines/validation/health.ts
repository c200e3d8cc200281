/** Checks the health check of a task that is not a container. */
import type { Duration, HealthCheck } from "../../proto/gen/messages.ts";
import { durationMs } from "../../proto/time.ts";
import { invalid, type Refusal } from "../refusal.ts";

/** Same as for a container's health check. */
const msMin = 1;
/** A check that runs less than once a day is useless, and timers have a maximum. */
const msMax = 86_400_000;
const portMax = 65_535;
/** Bytes of a path: more than servers accept. */
const pathMax = 2_048;
/** Characters of a DNS name with a port. */
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
  return port >= 1 && port <= portMax ? null : `invalid port ${port}: expected 1 to ${portMax}`;
}

function httpFlaw({ host, path, port }: NonNullable<HealthCheck["http"]>): string | null {
  if (path !== "" && (path.length > pathMax || !/^\/[\u0021-\u007e]*$/.test(path)))
    return `invalid path "${path.slice(0, 100)}": expected "/" and up to ${pathMax - 1} printable ASCII characters, no spaces`;
  if (host.length > hostMax || !/^[A-Za-z0-9._:[\]-]*$/.test(host))
    return `invalid host "${host.slice(0, 100)}": expected a host name or address`;
  return portFlaw(port);
}

export function checkHealthCheck(check: HealthCheck | null): Refusal | null {
  if (check === null) return null;
  const { command, http, interval, startInterval, startPeriod, tcp, timeout } = check;
  const kinds = [command.length > 0, http !== null, tcp !== null].filter(Boolean).length;
  if (kinds !== 1) return wrong("specify exactly one of command, http and tcp");
  if (command[0] === "") return wrong("the command is empty");
  const flaw =
    (http === null ? null : httpFlaw(http)) ??
    (tcp === null ? null : portFlaw(tcp.port)) ??
    timeFlaw("interval", interval) ??
    timeFlaw("timeout", timeout) ??
    timeFlaw("start period", startPeriod) ??
    timeFlaw("start interval", startInterval);
  return flaw === null ? null : wrong(flaw);
}
