/** The health check of a task that is no container: from flags to the payload. */
import { HealthCheck, HealthHttp, HealthTcp, type Duration } from "../../proto/gen/messages.ts";
import { UsageError } from "../command.ts";
import { UserError } from "../user-error.ts";
import { parseCount, parsePositiveDuration } from "../values.ts";
import type { SettingValues } from "./service-flags.ts";

/** Those that say what is looked at; each says all of it. */
const looks = ["health-cmd", "health-http", "health-tcp"] as const;
const settings = [
  "health-interval",
  "health-timeout",
  "health-retries",
  "health-start-period",
  "health-start-interval",
] as const;

const httpPort = 80;

/** `:8080/ready` or a URL whose host is what the request's Host says; the task's address is where it is asked. */
export function healthHttp(text: string, name: string): HealthHttp {
  const match = /^(?:http:\/\/([^/:[\]\s]*|\[[^/\]\s]*\])(?=[:/]|$))?(?::(\d+))?(\/\S*)?$/.exec(text);
  if (match === null || text === "")
    throw new UsageError(`invalid ${name} "${text}": expected :PORT/PATH or http://HOST:PORT/PATH`);
  const [, host = "", port, path = "/"] = match;
  const authority = host === "" || port === undefined ? host : `${host}:${port}`;
  return HealthHttp.create({ port: port === undefined ? httpPort : Number(port), path, host: authority });
}

/** `:5432` */
export function healthTcp(text: string, name: string): HealthTcp {
  const port = /^:?(\d+)$/.exec(text)?.[1];
  if (port === undefined) throw new UsageError(`invalid ${name} "${text}": expected :PORT`);
  return HealthTcp.create({ port: Number(port) });
}

/** As Docker runs it. */
export function shellCheck(line: string): readonly string[] {
  return ["/bin/sh", "-c", line];
}

function lookAfter(before: HealthCheck | null, flags: SettingValues): Pick<HealthCheck, "command" | "http" | "tcp"> {
  const given = looks.filter((flag) => flags[flag] !== undefined);
  if (given.length > 1) throw new UserError(`--${given[0]} conflicts with --${given[1]}`);
  const [look] = given;
  if (look === undefined) {
    if (before === null)
      throw new UserError("say what is checked: one of --health-cmd, --health-http and --health-tcp");
    return before;
  }
  const text = flags[look] as string;
  switch (look) {
    case "health-cmd":
      if (text === "") throw new UserError("--health-cmd takes a command; --no-healthcheck takes the check away");
      return { command: shellCheck(text), http: null, tcp: null };
    case "health-http":
      return { command: [], http: healthHttp(text, "--health-http"), tcp: null };
    case "health-tcp":
      return { command: [], http: null, tcp: healthTcp(text, "--health-tcp") };
  }
}

/** What is not given stays. Null: no check. Throws UsageError and UserError. */
export function healthCheckAfter(before: HealthCheck | null, flags: SettingValues): HealthCheck | null {
  const isSaid = [...looks, ...settings].some((flag) => flags[flag] !== undefined);
  if (flags["no-healthcheck"] === true) {
    if (isSaid) throw new UserError("--no-healthcheck conflicts with --health-* options");
    return null;
  }
  if (!isSaid) return before;
  const base = before ?? HealthCheck.create();
  const time = (flag: Exclude<(typeof settings)[number], "health-retries">, now: Duration | null): Duration | null => {
    const text = flags[flag];
    return text === undefined ? now : parsePositiveDuration(text, flag);
  };
  const retries = flags["health-retries"];
  return HealthCheck.patch(base, {
    ...lookAfter(before, flags),
    interval: time("health-interval", base.interval),
    timeout: time("health-timeout", base.timeout),
    startPeriod: time("health-start-period", base.startPeriod),
    startInterval: time("health-start-interval", base.startInterval),
    retries: retries === undefined ? base.retries : parseCount(retries, "health-retries"),
  });
}
