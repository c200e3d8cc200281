/** Formats the lines of an nft script. */
import { families, IpSetType, setName, type IpSet } from "./ip-set.ts";
import { tableName } from "./names.ts";
import type { Chain, DispatchElement } from "./output.ts";

/** Elements per line: nft would parse a line with a million of them as a single token list. */
const elementsPerLine = 10_000;

const kernelTypes: Readonly<Record<IpSetType, (family: 4 | 6) => string>> = {
  [IpSetType.IP]: (family) => `type ipv${family}_addr;`,
  [IpSetType.NET]: (family) => `type ipv${family}_addr; flags interval;`,
  [IpSetType.IP_AND_PORT]: (family) => `type ipv${family}_addr . inet_proto . inet_service;`,
};

export function chainLine(name: string, { hook }: Chain): string {
  return `add chain inet ${tableName} ${name}${hook === null ? "" : ` { ${hook} }`}`;
}

export function ruleLines(script: string[], name: string, { lines }: Chain): void {
  for (const line of lines) script.push(`add rule inet ${tableName} ${name} ${line}`);
}

export function elementLine(verb: "add" | "delete", { map, key, verdict }: DispatchElement): string {
  return `${verb} element inet ${tableName} ${map} { ${key}${verdict === null ? "" : ` : ${verdict}`} }`;
}

export function installSet(script: string[], set: IpSet): void {
  for (const family of families) {
    const name = setName(set.id, set.type, family);
    script.push(`add set inet ${tableName} ${name} { ${kernelTypes[set.type](family)} }`);
    set.takeChange(family);
    setElements(script, "add", name, set.elements(family));
  }
  set.isInstalled = true;
}

export function setElements(
  script: string[],
  verb: "add" | "delete",
  name: string,
  elements: ReadonlySet<string>,
): void {
  let line: string[] = [];
  const write = (): void => {
    if (line.length > 0) script.push(`${verb} element inet ${tableName} ${name} { ${line.join(", ")} }`);
    line = [];
  };
  for (const element of elements) if (line.push(element) >= elementsPerLine) write();
  write();
}
