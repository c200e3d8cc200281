/**
 * The files of the statecharts. The folder `machines/` is the registry, so that no chart can be missing: each file
 * `*.machine.ts` exports one chart or more, named `…Machine`. In packages, tools/package/ replaces this module by a list.
 */
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { AnyStateMachine } from "xstate";

const folder = new URL("../machines/", import.meta.url);

export interface ChartFile {
  /** Below `machines/`. */
  readonly file: string;
  /** Text of the header comment, without its stars. */
  readonly header: string;
  /** Ids of the machines and of the states in it that have one. */
  readonly ids: readonly string[];
  /** Names of the exported machines. */
  readonly names: readonly string[];
}

export interface LoadedChartFile extends ChartFile {
  load(): Promise<Readonly<Record<string, AnyStateMachine>>>;
}

/** Text of the comment at the start of a file, without its stars. */
export function headerOf(source: string): string {
  const header = /^\/\*\*([\s\S]*?)\*\//.exec(source)?.[1] ?? "";
  return header.replaceAll(/^\s*\* ?/gm, "");
}

export function chartFileOf(file: string, source: string): ChartFile {
  return {
    file,
    header: headerOf(source),
    ids: Array.from(source.matchAll(/\bid: "([^"]+)"/g), ([, id]) => id as string),
    names: Array.from(source.matchAll(/^export const (\w+Machine)\b/gm), ([, name]) => name as string),
  };
}

/** In the order of their paths. */
export function chartFiles(): readonly LoadedChartFile[] {
  return readdirSync(fileURLToPath(folder), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".machine.ts"))
    .toSorted()
    .map((file) => ({
      ...chartFileOf(file, readFileSync(new URL(file, folder), "utf8")),
      load: () => import(new URL(file, folder).href) as Promise<Readonly<Record<string, AnyStateMachine>>>,
    }));
}
