/** Human-readable node: the sections of `docker node inspect --pretty`, in the same order and wording. */
import { driversOf, isDriverLabel } from "../../machines/driver/labels.ts";
import {
  NodeSpec_Availability,
  NodeStatus_State,
  RaftMemberStatus_Reachability,
  type DataplaneReport,
  type Node,
} from "../../proto/gen/messages.ts";
import { driverSince, tally } from "../policy/status.ts";
import { bytesText } from "../../machines/bytes-text.ts";
import { millisecondsOf } from "../values.ts";

type Lines = readonly string[];

const nameColumn = 23;

/** `Name:  value`; empty without a value. */
function field(name: string, value: string, indent = 0): Lines {
  return value === "" ? [] : [`${" ".repeat(indent)}${`${name}:`.padEnd(nameColumn - indent)}${value}`];
}

/** A heading and its lines; empty without lines. */
function section(name: string, lines: Lines): Lines {
  return lines.length === 0 ? [] : [`${name}:`, ...lines];
}

/** `READY` → `Ready`. */
function word(names: Readonly<Record<string, number>>, value: number): string {
  const found = Object.keys(names).find((name) => names[name] === value) ?? String(value);
  return found.charAt(0) + found.slice(1).toLowerCase();
}

function labelLines(labels: Readonly<Record<string, string>>): Lines {
  return Object.entries(labels)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => ` - ${key}${value === "" ? "" : `=${value}`}`);
}

/** Without the labels that describe the node's drivers, which have their own section. */
function ownLabels(labels: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(labels).filter(([name]) => !isDriverLabel(name)));
}

function pluginLines(node: Node): Lines {
  const byType = Map.groupBy(node.description?.engine?.plugins ?? [], ({ type }) => type);
  return [...byType].flatMap(([type, plugins]) =>
    field(
      type,
      plugins
        .map(({ name }) => name)
        .toSorted()
        .join(", "),
      1,
    ),
  );
}

function driverLines({ description }: Node): Lines {
  return driversOf(description?.engine?.labels ?? {}).map(({ health, kind, reason, version }) => {
    const words = [kind, version, health].filter((word) => word !== "").join(" ");
    return ` ${words}${reason === "" ? "" : ` (${reason})`}`;
  });
}

function managerLines({ managerStatus }: Node): Lines {
  if (managerStatus === null) return [];
  return [
    ...field("Address", managerStatus.addr, 1),
    ...field("Raft Status", word(RaftMemberStatus_Reachability, managerStatus.reachability), 1),
    ...field("Leader", managerStatus.leader ? "Yes" : "No", 1),
  ];
}

function tlsLines({ description }: Node): Lines {
  const tls = description?.tlsInfo;
  if (tls == null || tls.trustRoot.length === 0) return [];
  return [
    " TrustRoot:",
    new TextDecoder().decode(tls.trustRoot).trimEnd(),
    ...field("Issuer Subject", Buffer.from(tls.certIssuerSubject).toString("base64"), 1),
    ...field("Issuer Public Key", Buffer.from(tls.certIssuerPublicKey).toString("base64"), 1),
  ];
}

function dataplaneLines(report: DataplaneReport | undefined): Lines {
  if (report === undefined) return [];
  return [
    ...field("State", report.reason === "" ? report.state : `${report.state} (${report.reason})`, 1),
    ...field("Driver", report.driver, 1),
    ...field("Driver Since", driverSince(report), 1),
    ...field("Restarts", String(report.restarts), 1),
    ...field("Endpoints", tally(report.endpoints), 1),
    ...field("Host Endpoints", tally(report.hostEndpoints), 1),
  ];
}

/** `report`: the report of its dataplane. `session`: the state of its session, if the answering manager holds it. */
export function prettyNode(node: Node, report: DataplaneReport | undefined, session = ""): string {
  const { description, meta, spec, status } = node;
  const joined = millisecondsOf(meta?.createdAt ?? null);
  const { nanoCpus = 0, memoryBytes = 0 } = description?.resources ?? {};
  return [
    ...field("ID", node.id),
    ...field("Name", spec?.annotations?.name ?? ""),
    ...section("Labels", labelLines(spec?.annotations?.labels ?? {})),
    ...field("Hostname", description?.hostname ?? ""),
    ...field("Joined at", joined === null ? "" : new Date(joined).toISOString()),
    ...section("Status", [
      ...field("State", word(NodeStatus_State, status?.state ?? NodeStatus_State.UNKNOWN), 1),
      ...field("Message", status?.message ?? "", 1),
      ...field("Session", session, 1),
      ...field("Availability", word(NodeSpec_Availability, spec?.availability ?? NodeSpec_Availability.ACTIVE), 1),
      ...field("Address", status?.addr ?? "", 1),
    ]),
    ...section("Manager Status", managerLines(node)),
    ...section("Platform", [
      ...field("Operating System", description?.platform?.os ?? "", 1),
      ...field("Architecture", description?.platform?.architecture ?? "", 1),
    ]),
    ...section("Resources", [
      ...field("CPUs", nanoCpus === 0 ? "" : String(nanoCpus / 1e9), 1),
      ...field("Memory", memoryBytes === 0 ? "" : bytesText(memoryBytes), 1),
    ]),
    ...section("Plugins", pluginLines(node)),
    ...section("Drivers", driverLines(node)),
    ...section("Dataplane", dataplaneLines(report)),
    ...field("Engine Version", description?.engine?.engineVersion ?? ""),
    ...section("Engine Labels", labelLines(ownLabels(description?.engine?.labels ?? {}))),
    ...section("TLS Info", tlsLines(node)),
  ].join("\n");
}
