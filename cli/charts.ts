/** `muster charts`: every statechart of the system. */
import type { AnyStateMachine, StateNode } from "xstate";
import { chartFiles } from "./chart-files.ts";
import { command, listingOptions, type Command } from "./command.ts";
import { printListing } from "./table.ts";
import { UsageError, UserError } from "../lib/user-error.ts";

export interface Chart {
  /** The machine's id in words, such as `agent-certificate`. */
  readonly name: string;
  /** The file below `machines/`. */
  readonly file: string;
  /** The first sentence of the file's header. */
  readonly summary: string;
  /** Text of the file's header comment. */
  readonly header: string;
  readonly machine: AnyStateMachine;
}

/** The first sentence of the header's first paragraph, as one line. */
function summaryOf(header: string): string {
  const [first = ""] = header.trim().split(/\n\s*\n/);
  return first.replaceAll(/\s+/g, " ").split(/(?<=\.) /)[0] ?? "";
}

/** `agentCertificate` is `agent-certificate`. */
function inWords(id: string): string {
  return id.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/** With an `id`, only the files that may have the machine of that id are loaded. */
export async function allCharts(id: string | null = null): Promise<readonly Chart[]> {
  const charts: Chart[] = [];
  for (const { file, header, ids, load, names } of chartFiles()) {
    if (id !== null && !ids.includes(id)) continue;
    const module = await load();
    for (const name of names) {
      const machine = module[name];
      if (machine !== undefined)
        charts.push({ name: inWords(machine.id), file, summary: summaryOf(header), header, machine });
    }
  }
  return charts;
}

function statesOf(node: Pick<StateNode, "states">): number {
  return Object.values(node.states).reduce((sum, child) => sum + 1 + statesOf(child), 0);
}

async function named(names: readonly string[]): Promise<readonly Chart[]> {
  const charts = await allCharts();
  if (names.length === 0) return charts;
  return names.map((name) => {
    const found = charts.find((chart) => chart.name === name || chart.machine.id === name);
    if (found === undefined) throw new UserError(`statechart "${name}" not found: see 'muster charts'`);
    return found;
  });
}

/** Formats of other tools: the text of one chart. */
const exports: Readonly<Record<string, (chart: Chart) => Promise<string>>> = {
  async xstate({ machine, summary }) {
    const { xstateConfigOf } = await import("./charts/xstate.ts");
    return JSON.stringify(xstateConfigOf(machine, summary), null, 2);
  },
  async stately({ machine, summary }) {
    const [{ chartData }, { statelyMachineOf }] = await Promise.all([
      import("./charts/chart-data.ts"),
      import("./charts/stately.ts"),
    ]);
    return JSON.stringify(statelyMachineOf(chartData(machine), summary, machine.config.context), null, 2);
  },
  async scxml({ machine, summary }) {
    const [{ chartData }, { scxmlOf }] = await Promise.all([
      import("./charts/chart-data.ts"),
      import("./charts/scxml.ts"),
    ]);
    return scxmlOf(chartData(machine), summary).trimEnd();
  },
};

export const charts: Command = command({
  operands: "[NAME...]",
  summary: "List the statecharts of the system, or export them with --format.",
  options: {
    ...listingOptions,
    format: {
      ...listingOptions.format,
      help:
        "Output format: table, json, mermaid, xstate (config of createMachine), stately (Stately Machine Specification), " +
        "scxml (one chart), a Go template, or 'table TEMPLATE' (default table)",
      completes: ["table", "json", "mermaid", "xstate", "stately", "scxml"],
    },
  },
  async run({ values, operands, shell }) {
    const chosen = await named(operands);
    const exported = exports[values.format ?? ""];
    if (exported !== undefined) {
      if (values.format === "scxml" && chosen.length !== 1)
        throw new UsageError(
          `--format scxml writes one document: name one chart instead of ${chosen.length} (see 'muster charts')`,
        );
      for (const chart of chosen) shell.print(await exported(chart));
      return;
    }
    if (values.format === "mermaid") {
      const { handlersOf, picturesOf } = await import("./chart-mermaid.ts");
      for (const { name, machine } of chosen) {
        const pictures = picturesOf(machine);
        for (const { of, mermaid } of pictures) {
          if (chosen.length + pictures.length > 2) shell.print(`%% ${of === "" ? name : `${name}: ${of}`}`);
          shell.print(mermaid);
        }
        for (const { event, to, within } of handlersOf(machine))
          shell.print(`%% in ${within.length === 0 ? "any state" : within.join(", ")}: ${event} leads to ${to}`);
      }
      return;
    }
    if (values.format === "json" && values.quiet !== true) {
      for (const { name, summary, machine } of chosen) {
        shell.print(JSON.stringify({ name, summary, machine: machine.config as unknown }));
      }
      return;
    }
    printListing(
      shell,
      {
        headings: ["NAME", "STATES", "DESCRIPTION"],
        rows: chosen.map(({ name, file, summary, machine }) => ({
          id: name,
          cells: [name, String(statesOf(machine.root)), summary],
          object: () => ({ name, file, summary }),
        })),
      },
      values,
    );
  },
});
