/** Health check of tasks without a container: conversion from flags to the payload. */
import { HealthCheck, HealthHttp, HealthTcp, type Duration } from "../../proto/gen/messages.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import { parseCount, parsePositiveDuration } from "../values.ts";
import type { SettingValues } from "./flags.ts";

/** Flags that set the kind of check; mutually exclusive. */
const probes = ["health-cmd", "health-http", "health-tcp"] as const;
const settings = [
  "health-interval",
  "health-timeout",
  "health-retries",
  "health-start-period",
  "health-start-interval",
] as const;

const httpPort = 80;

/** Parses `:8080/ready` or a URL, whose host becomes the request's Host header; the request goes to the task's address. */
export function healthHttp(text: string, name: string): HealthHttp {
  const match = /^(?:http:\/\/([^/:[\]\s]*|\[[^/\]\s]*\])(?=[:/]|$))?(?::(\d+))?(\/\S*)?$/.exec(text);
  if (match === null || text === "")
    throw new UsageError(`invalid ${name} "${text}": expected :PORT/PATH or http://HOST:PORT/PATH`);
  const [, host = "", port, path = "/"] = match;
  const authority = host === "" || port === undefined ? host : `${host}:${port}`;
  return HealthHttp.create({ port: port === undefined ? httpPort : Number(port), path, host: authority });
}

/** Parses `:5432`. */
export function healthTcp(text: string, name: string): HealthTcp {
  const port = /^:?(\d+)$/.exec(text)?.[1];
  if (port === undefined) throw new UsageError(`invalid ${name} "${text}": expected :PORT`);
  return HealthTcp.create({ port: Number(port) });
}

/** Runs the line in a shell, like Docker. */
export function shellCheck(line: string): readonly string[] {
  return ["/bin/sh", "-c", line];
}

function probeAfter(before: HealthCheck | null, flags: SettingValues): Pick<HealthCheck, "command" | "http" | "tcp"> {
  const given = probes.filter((flag) => flags[flag] !== undefined);
  if (given.length > 1) throw new UserError(`--${given[0]} conflicts with --${given[1]}`);
  const [probe] = given;
  if (probe === undefined) {
    if (before === null)
      throw new UserError("the health check has no kind: set one of --health-cmd, --health-http and --health-tcp");
    return before;
  }
  const text = flags[probe] as string;
  switch (probe) {
    case "health-cmd":
      if (text === "") throw new UserError("--health-cmd is empty: to remove the check, use --no-healthcheck");
      return { command: shellCheck(text), http: null, tcp: null };
    case "health-http":
      return { command: [], http: healthHttp(text, "--health-http"), tcp: null };
    case "health-tcp":
      return { command: [], http: null, tcp: healthTcp(text, "--health-tcp") };
  }
}

/** Absent flags change nothing. Null: no check. Throws UsageError and UserError. */
export function healthCheckAfter(before: HealthCheck | null, flags: SettingValues): HealthCheck | null {
  const isGiven = [...probes, ...settings].some((flag) => flags[flag] !== undefined);
  if (flags["no-healthcheck"] === true) {
    if (isGiven) throw new UserError("--no-healthcheck conflicts with --health-* options");
    return null;
  }
  if (!isGiven) return before;
  const base = before ?? HealthCheck.create();
  const time = (flag: Exclude<(typeof settings)[number], "health-retries">, now: Duration | null): Duration | null => {
    const text = flags[flag];
    return text === undefined ? now : parsePositiveDuration(text, flag);
  };
  const retries = flags["health-retries"];
  return HealthCheck.patch(base, {
    ...probeAfter(before, flags),
    interval: time("health-interval", base.interval),
    timeout: time("health-timeout", base.timeout),
    startPeriod: time("health-start-period", base.startPeriod),
    startInterval: time("health-start-interval", base.startInterval),
    retries: retries === undefined ? base.retries : parseCount(retries, "health-retries"),
  });
}
