/** Docker's `--publish` syntax, and how added and removed ports change a service's ports. */
import { PortConfig, PortConfig_Protocol, PortConfig_PublishMode } from "../proto/gen/messages.ts";
import { portNamePattern } from "../machines/policy/check.ts";
import { UsageError } from "../lib/user-error.ts";
import { anyNumber, csvFields, parseChoice, parseCount } from "./values.ts";

const protocols = { tcp: PortConfig_Protocol.TCP, udp: PortConfig_Protocol.UDP, sctp: PortConfig_Protocol.SCTP };
const publishModes = { ingress: PortConfig_PublishMode.INGRESS, host: PortConfig_PublishMode.HOST };

function portNumber(text: string, flag: string): number {
  const port = parseCount(text, flag, anyNumber);
  if (port < 0 || port > 65_535) throw new UsageError(`--${flag}: invalid port "${text}": expected 0 to 65535`);
  return port;
}

/** Port names, used by network policies. */
function portName(text: string, flag: string): string {
  if (!portNamePattern.test(text))
    throw new UsageError(`--${flag}: invalid name "${text}": expected 1 to 63 letters, digits, '.', '_' or '-'`);
  return text;
}

/** Parses `8080` or `8080-8090`, both ends included. */
function portRange(text: string, flag: string): { readonly first: number; readonly size: number } {
  const [from = "", to = from] = text.split("-");
  const [first, last] = [portNumber(from, flag), portNumber(to, flag)];
  if (last < first) throw new UsageError(`--${flag}: invalid port range "${text}": the end is below the start`);
  return { first, size: last - first + 1 };
}

/** `8080:80[/tcp]`, `80` or `:80`; ranges of equal length on both sides, or a published range for one target port. */
function shortForm(value: string, flag: string): readonly PortConfig[] {
  const match = /^(?:(\d+(?:-\d+)?)?:)?(\d+(?:-\d+)?)(?:\/(\w+))?$/.exec(value);
  if (match === null) {
    const isAddress = /^\[?[\d.:a-fA-F]+\]?:\d*:\d+/.test(value);
    throw new UsageError(
      isAddress
        ? `--${flag}: "${value}" has a host IP: a service's ports are published on all addresses of a node`
        : `invalid argument "${value}" for "--${flag}" flag: expected PUBLISHED:TARGET or mode=…,target=…,published=…`,
    );
  }
  const targets = portRange(match[2] as string, flag);
  const published = match[1] === undefined ? null : portRange(match[1], flag);
  const isOneTarget = targets.size === 1;
  if (published !== null && published.size !== targets.size && !isOneTarget) {
    throw new UsageError(`--${flag}: the port ranges in "${value}" differ in length`);
  }
  const protocol = parseChoice((match[3] ?? "tcp").toLowerCase(), flag, protocols);
  return Array.from({ length: published?.size ?? targets.size }, (_, at) =>
    PortConfig.create({
      protocol,
      targetPort: targets.first + (isOneTarget ? 0 : at),
      publishedPort: published === null ? 0 : published.first + at,
    }),
  );
}

/** `mode=host,target=80,published=8080,protocol=tcp,name=http`. Docker's flag has no name; Compose files have. */
function longForm(value: string, flag: string): PortConfig {
  const port: { -readonly [Key in keyof PortConfig]?: PortConfig[Key] } = {};
  for (const field of csvFields(value, flag)) {
    const at = field.indexOf("=");
    if (at < 1) throw new UsageError(`--${flag}: invalid field "${field}": expected KEY=VALUE`);
    const [key, text] = [field.slice(0, at).toLowerCase(), field.slice(at + 1)];
    const lower = text.toLowerCase();
    if (key === "name") port.name = portName(text, flag);
    else if (key === "target") port.targetPort = portNumber(lower, flag);
    else if (key === "published") port.publishedPort = portNumber(lower, flag);
    else if (key === "protocol") port.protocol = parseChoice(lower, flag, protocols);
    else if (key === "mode") port.publishMode = parseChoice(lower, flag, publishModes);
    else throw new UsageError(`--${flag}: unknown field "${key}": expected name, target, published, protocol or mode`);
  }
  if (port.targetPort === undefined || port.targetPort === 0)
    throw new UsageError(`--${flag}: target=PORT is required`);
  return PortConfig.create(port);
}

export function parsePublish(value: string, flag = "publish"): readonly PortConfig[] {
  return value.includes("=") ? [longForm(value, flag)] : shortForm(value, flag);
}

function named(names: Readonly<Record<string, number>>, value: number): string {
  return Object.keys(names).find((name) => names[name] === value) ?? "";
}

/** Identifies and sorts ports, in Docker's order. */
function portText({ publishedPort, targetPort, protocol, publishMode }: PortConfig): string {
  return `${publishedPort}:${targetPort}/${named(protocols, protocol)}/${named(publishModes, publishMode)}`;
}

/**
 * Applies `--publish-rm`, which matches by target and protocol (and by mode, if the long form sets one), then adds ports. A
 * port that already exists is kept once, with the name given on adding it, if any. Unlike in Docker, a port removed and added
 * in the same command exists afterwards, and the short form also removes a host port. Sorted, so that the same set yields the
 * same spec.
 */
export function portsAfter(
  before: readonly PortConfig[],
  added: readonly string[],
  removed: readonly string[],
): readonly PortConfig[] {
  const isGone = (port: PortConfig): boolean =>
    removed.some((text) =>
      parsePublish(text, "publish-rm").some(
        ({ targetPort, protocol, publishMode }) =>
          port.targetPort === targetPort &&
          port.protocol === protocol &&
          (!text.includes("mode=") || port.publishMode === publishMode),
      ),
    );
  const ports = new Map<string, PortConfig>();
  for (const port of before) if (!isGone(port)) ports.set(portText(port), port);
  for (const port of added.flatMap((text) => parsePublish(text, "publish-add"))) {
    const text = portText(port);
    if (!ports.has(text) || port.name !== "") ports.set(text, port);
  }
  return [...ports].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, port]) => port);
}
