/**
 * Parses main's raw settings (docs/reference/felix-dataplane-protocol.md §9.3). Main sends only explicitly set values; the
 * defaults are here. An invalid value counts as unset, and is reported.
 */
import { netText, parseHost, parseNet } from "./addresses.ts";
import { portProtocols, protocolNumber } from "./protocols.ts";

/** Traffic that no policy can block. */
export interface FailsafePort {
  readonly protocol: number;
  /** The peer's network; null: any. */
  readonly net: { readonly family: 4 | 6; readonly text: string } | null;
  readonly port: number;
}

export interface Settings {
  /** Name prefixes of workload interfaces. */
  readonly interfacePrefixes: readonly string[];
  readonly endpointToHost: "DROP" | "RETURN" | "ACCEPT";
  readonly logsDrops: boolean;
  /** Our bits of the packet mark: one for packets that a policy has accepted, one for those it has passed on. */
  readonly marks: { readonly accept: number; readonly pass: number };
  /** Null: workloads may not reach it. */
  readonly metadata: { readonly address: string; readonly port: number } | null;
  readonly failsafeIn: readonly FailsafePort[];
  readonly failsafeOut: readonly FailsafePort[];
  readonly isIpInIp: boolean;
  /** One list of policies per tier, for both directions, as before 2.6; Felix does not say which it is. */
  readonly hasOneTierList: boolean;
  /** Milliseconds; 0: never. */
  readonly reportingMs: number;
  readonly refreshMs: number;
  readonly interfacePollMs: number;
}

/** The current defaults and those of 2016 combined: they keep a mistake from cutting off the node. */
const failsafeInDefault = "tcp:22,udp:68,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667";
const failsafeOutDefault =
  "udp:53,udp:67,tcp:179,tcp:2379,tcp:2380,tcp:4001,tcp:5473,tcp:6443,tcp:6666,tcp:6667,tcp:7001";

interface Parameter<T> {
  readonly name: string;
  readonly byDefault: string;
  /** The value of the literal `none`. */
  readonly none: T;
  /** Null: invalid. */
  readonly parse: (text: string) => T | null;
}

interface ReadSettings {
  readonly settings: Settings;
  /** A sentence for each invalid value. */
  readonly problems: readonly string[];
}

export function readSettings(config: Readonly<Record<string, string>>): ReadSettings {
  const problems: string[] = [];
  const values = new Map(Object.entries(config).map(([name, value]) => [name.toLowerCase(), value.trim()]));
  const read = <T>({ name, byDefault, none, parse }: Parameter<T>): T => {
    const text = values.get(name.toLowerCase());
    if (text?.toLowerCase() === "none") return none;
    const value = text === undefined || text === "" ? null : parse(text);
    if (value !== null) return value;
    if (text !== undefined && text !== "")
      problems.push(`invalid ${name} ${JSON.stringify(text)}: using ${byDefault || "no value"}`);
    return parse(byDefault) ?? none;
  };
  const seconds = (name: string, byDefault: number): number =>
    read({ name, byDefault: String(byDefault), none: 0, parse: secondsOf }) * 1_000;
  const address = read({ name: "MetadataAddr", byDefault: "127.0.0.1", none: "", parse: addressOf });
  const port = read({ name: "MetadataPort", byDefault: "8775", none: 0, parse: portOf });
  const dropAction = read({ name: "DropActionOverride", byDefault: "DROP", none: "DROP", parse: dropOverride });
  const failsafe = { none: [] as readonly FailsafePort[], parse: failsafePorts };
  return {
    settings: {
      interfacePrefixes: read({ name: "InterfacePrefix", byDefault: "cali", none: [], parse: prefixes }),
      endpointToHost: read({ name: "DefaultEndpointToHostAction", byDefault: "DROP", none: "DROP", parse: hostAction }),
      logsDrops: dropAction === "LOG-and-DROP",
      marks: read({ name: "IptablesMarkMask", byDefault: "0xff000000", none: defaultMarks, parse: marksIn }),
      metadata: address === "" || port === 0 ? null : { address, port },
      failsafeIn: read({ ...failsafe, name: "FailsafeInboundHostPorts", byDefault: failsafeInDefault }),
      failsafeOut: read({ ...failsafe, name: "FailsafeOutboundHostPorts", byDefault: failsafeOutDefault }),
      isIpInIp: read({ name: "IpInIpEnabled", byDefault: "false", none: false, parse: flag }),
      hasOneTierList: read({ name: "MusterTierLists", byDefault: "two", none: false, parse: tierLists }),
      reportingMs: seconds("ReportingIntervalSecs", 30),
      refreshMs: seconds("IptablesRefreshInterval", 60),
      interfacePollMs: seconds("HostInterfacePollInterval", 10),
    },
    problems,
  };
}

const defaultMarks = { accept: 0x1000000, pass: 0x2000000 };

function prefixes(text: string): readonly string[] | null {
  const list = text.split(",").map((part) => part.trim());
  return list.every((part) => /^[A-Za-z0-9_.-]{1,14}$/.test(part)) ? list : null;
}

function hostAction(text: string): Settings["endpointToHost"] | null {
  const upper = text.toUpperCase();
  return upper === "DROP" || upper === "RETURN" || upper === "ACCEPT" ? upper : null;
}

/** The two values that accept are for debugging and would bypass policies: they are rejected. */
function dropOverride(text: string): "DROP" | "LOG-and-DROP" | null {
  const lower = text.toLowerCase();
  return lower === "drop" ? "DROP" : lower === "log-and-drop" ? "LOG-and-DROP" : null;
}

/** The two lowest bits of the mask. */
function marksIn(text: string): Settings["marks"] | null {
  if (!/^(0x[0-9a-f]{1,8}|\d{1,10})$/i.test(text)) return null;
  const mask = Number(text);
  const bits = Array.from({ length: 32 }, (_, bit) => 2 ** bit).filter((bit) => Math.floor(mask / bit) % 2 === 1);
  const [accept, pass] = bits;
  return accept === undefined || pass === undefined || mask > 0xffffffff ? null : { accept, pass };
}

function addressOf(text: string): string | null {
  const address = parseHost(text);
  return address === null || address.family !== 4 ? null : netText(address);
}

function portOf(text: string): number | null {
  return /^\d{1,5}$/.test(text) && Number(text) >= 1 && Number(text) <= 65_535 ? Number(text) : null;
}

function flag(text: string): boolean | null {
  if (/^(true|1|yes|y|t)$/i.test(text)) return true;
  return /^(false|0|no|n|f)$/i.test(text) ? false : null;
}

function tierLists(text: string): boolean | null {
  return text === "one" ? true : text === "two" ? false : null;
}

function secondsOf(text: string): number | null {
  return /^\d{1,7}(\.\d+)?$/.test(text) ? Number(text) : null;
}

/** `PORT`, `PROTOCOL:PORT` or `PROTOCOL:NET:PORT`, separated by commas. */
function failsafePorts(text: string): readonly FailsafePort[] | null {
  const ports: FailsafePort[] = [];
  for (const entry of text.split(",").map((part) => part.trim().toLowerCase())) {
    const match = /^(?:([a-z0-9]+):)?(?:([0-9a-f.:[\]/]+):)?(\d{1,5})$/.exec(entry);
    const protocol = protocolNumber(match?.[1] ?? "tcp");
    const port = portOf(match?.[3] ?? "");
    const net = match?.[2] === undefined ? null : parseNet(match[2].replaceAll(/[[\]]/g, ""));
    if (protocol === null || !portProtocols.includes(protocol) || port === null) return null;
    if (match?.[2] !== undefined && net === null) return null;
    ports.push({ protocol, port, net: net === null ? null : { family: net.family, text: netText(net) } });
  }
  return ports;
}
