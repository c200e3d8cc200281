/** Completion candidates at the cursor, from the same tables as the help. */
import { shellFor } from "../command.ts";
import { type CommandDescription, type Completable, type FlagDescription } from "../help/description.ts";
import { contextNames } from "../contexts.ts";
import { commandAt, wordsAfter, type Verbs } from "../help/tree.ts";
import type { Shell } from "../shell.ts";
import { objectNames } from "./objects.ts";

interface Candidates {
  readonly words: readonly string[];
  /** Whether the shell should complete file names. */
  readonly files: boolean;
}

const none: Candidates = { words: [], files: false };
const files: Candidates = { words: [], files: true };

/** Kinds of objects for `watch` and `history`; extensions add their own kinds. */
const objectKinds = [
  "cluster",
  "config",
  "extension",
  "network",
  "node",
  "resource",
  "secret",
  "service",
  "task",
  "volume",
];

/** Placeholders of operands and values, and what they complete to. */
const kinds: Readonly<Record<string, readonly Completable[]>> = {
  CONFIG: ["config"],
  FILE: ["file"],
  JOB: ["job"],
  NETWORK: ["network"],
  NODE: ["node"],
  SECRET: ["secret"],
  SERVICE: ["service"],
  STACK: ["stack"],
  TASK: ["task"],
  VOLUME: ["volume"],
};

/** Flags of any command whose value is an object's name or one of a few words. */
const flagValues: Readonly<Record<string, Completable | readonly string[]>> = {
  availability: ["active", "pause", "drain"],
  config: "config",
  "config-add": "config",
  "config-rm": "config",
  "compose-file": "file",
  "data-dir": "file",
  "endpoint-mode": ["vip", "dnsrr"],
  "env-file": "file",
  isolation: ["default", "process", "hyperv"],
  "log-level": ["trace", "debug", "info", "warn", "error", "fatal"],
  mode: ["replicated", "global", "replicated-job", "global-job"],
  network: "network",
  "network-add": "network",
  "network-rm": "network",
  "on-disconnect": ["keep", "replace"],
  "resolve-image": ["always", "changed", "never"],
  "restart-condition": ["none", "on-failure", "any"],
  "rollback-failure-action": ["pause", "continue"],
  "rollback-order": ["start-first", "stop-first"],
  secret: "secret",
  "secret-add": "secret",
  "secret-rm": "secret",
  "update-failure-action": ["pause", "continue", "rollback"],
  "update-order": ["start-first", "stop-first"],
};

/** Commands whose operand is a new name. */
const making = /(?:^| )(?:create|run)$/;

/** Kinds of the operand at index `at`; the last operand repeats. */
function operandKinds({ completes, name, operands }: CommandDescription, at: number): readonly Completable[] {
  if (completes !== null) return completes;
  const shown = operands.split(" ").filter((word) => word !== "");
  const word = shown[Math.min(at, shown.length - 1)] ?? "";
  const named = [...word.matchAll(/[A-Z]+/g)].flatMap(([each]) =>
    Object.hasOwn(kinds, each) ? (kinds[each] ?? []) : [],
  );
  // `secret create SECRET FILE`: the name is new, the file is not.
  return making.test(name) ? named.filter((kind) => kind === "file") : named;
}

/** Lower-case words among the operands are literals: `worker|manager`. */
function literals({ operands }: CommandDescription, at: number): readonly string[] {
  const shown = operands.split(" ").filter((word) => word !== "");
  const word = shown[Math.min(at, shown.length - 1)] ?? "";
  if (/\bKIND\b/.test(word)) return objectKinds;
  return word.split(/[[\]|.=]+/).filter((each) => /^[a-z][a-z-]*$/.test(each));
}

/** Loaded only when asked for: it takes as long as a short command. */
async function scenarios(wanted: readonly Completable[]): Promise<readonly string[]> {
  return wanted.includes("scenario") ? (await import("../simulate/ready-scenarios.ts")).readyScenarios() : [];
}

async function ofKinds(
  verbs: Verbs,
  shell: Shell,
  wanted: readonly Completable[],
  also: readonly string[] = [],
): Promise<Candidates> {
  const isFiles = wanted.includes("file");
  const asked = wanted.filter((kind) => kind !== "file" && kind !== "verb" && kind !== "scenario");
  const words = [...(wanted.includes("verb") ? Object.keys(verbs) : []), ...(await scenarios(wanted))];
  const names = asked.length === 0 ? [] : await objectNames(shell, asked);
  return { words: [...also, ...words, ...names], files: isFiles || wanted.includes("scenario") };
}

async function flagValue(
  verbs: Verbs,
  shell: Shell,
  { completes, help = "", name, value }: FlagDescription,
): Promise<Candidates> {
  const known = completes ?? (Object.hasOwn(flagValues, name) ? flagValues[name] : undefined);
  if (typeof known === "string") return ofKinds(verbs, shell, [known]);
  if (known !== undefined) return { words: known, files: false };
  // The help lists the keys: `id=, name= or label=`.
  if (name === "filter") return { words: help.match(/[a-z][a-z.-]*=/g) ?? [], files: false };
  return value === "FILE" || value === "PATH" || value === "SOCKET" ? files : none;
}

/** The flag that a word ends with: `--publish`, or the last of joined short flags such as `-dp`. */
function lastFlag(word: string, flags: readonly FlagDescription[]): FlagDescription | undefined {
  if (word.startsWith("--")) return flags.find(({ name }) => word === `--${name}`);
  const shorts = Array.from(word.slice(1), (char) => flags.find(({ short }) => short === char));
  // The rest after a flag that takes a value is its value.
  return shorts.slice(0, -1).every((flag) => flag?.takesValue === false) ? shorts.at(-1) : undefined;
}

/** Counts the operands among `words`, and finds a flag at their end that still needs a value. */
function walk(
  words: readonly string[],
  flags: readonly FlagDescription[],
): { readonly operands: number; readonly waiting: FlagDescription | null; readonly isEnded: boolean } {
  let operands = 0;
  let isEnded = false;
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at] ?? "";
    if (isEnded || !word.startsWith("-") || word === "-") {
      operands += 1;
      continue;
    }
    if (word === "--") isEnded = true;
    const flag = lastFlag(word, flags);
    if (flag?.takesValue !== true) continue;
    if (at === words.length - 1) return { operands, waiting: flag, isEnded };
    at += 1;
  }
  return { operands, waiting: null, isEnded };
}

/** `words`: complete words before the cursor, without `muster`; `current`: the partial word. */
export async function candidates(
  verbs: Verbs,
  shell: Shell,
  words: readonly string[],
  current: string,
): Promise<Candidates> {
  const hasHost = words[0] === "-H" || words[0] === "--host";
  const hasContext = words[0] === "--context";
  if (hasHost && words.length === 1) return files;
  if (hasContext && words.length === 1) return fitting({ words: contextNames(), files: false }, current);
  const rest = hasHost || hasContext ? words.slice(2) : words;
  const chosen = hasHost ? shell.at(words[1] ?? "") : hasContext ? shellFor(shell, undefined, words[1]) : shell;
  const isHelp = rest[0] === "help";
  const next = await wordsAfter(verbs, isHelp ? rest.slice(1) : rest);
  if (next !== null) {
    const flags = rest.length === 0 ? ["--context", "--host", "--help", "--version"] : ["--help"];
    return fitting({ words: current.startsWith("-") ? flags : [...next.keys()], files: false }, current);
  }
  const at = await commandAt(verbs, rest);
  if (at === null || isHelp) return none;
  const description = at.found.command.describe(at.found.name);
  return fitting(await within(verbs, chosen, description, rest.slice(at.length), current), current);
}

async function within(
  verbs: Verbs,
  shell: Shell,
  description: CommandDescription,
  words: readonly string[],
  current: string,
): Promise<Candidates> {
  const { flags, stopsAtOperand } = description;
  const { isEnded, operands, waiting } = walk(words, flags);
  if (waiting !== null) return flagValue(verbs, shell, waiting);
  // The rest is another program's command line.
  if (stopsAtOperand && operands > 0) return files;
  if (current.startsWith("--") && current.includes("=") && !isEnded) {
    const name = current.slice(2, current.indexOf("="));
    const flag = flags.find((each) => each.name === name && each.takesValue);
    if (flag === undefined) return none;
    const { files: isFiles, words: values } = await flagValue(verbs, shell, flag);
    return { files: isFiles, words: values.map((value) => `--${name}=${value}`) };
  }
  if (current.startsWith("-") && !isEnded) {
    const once = flags.filter(({ isRepeated, name }) => isRepeated || !words.includes(`--${name}`));
    return { words: once.map(({ name }) => `--${name}`), files: false };
  }
  return ofKinds(verbs, shell, operandKinds(description, operands), literals(description, operands));
}

function fitting({ files: isFiles, words }: Candidates, current: string): Candidates {
  return { words: words.filter((word) => word.startsWith(current)), files: isFiles };
}
