/** `muster stack`: deploy, ls, ps, services, config and rm. The implementation is in `stack/`. */
import { setMaxListeners } from "node:events";
import { ListTasksRequest_Filters } from "../proto/gen/messages.ts";
import { command, listingOptions, type Command } from "./command.ts";
import { listServices, serviceName, withManager, type ManagerClient } from "./manager-client.ts";
import { matching, serviceListing } from "./service/listing.ts";
import type { Shell } from "./shell.ts";
import { checkProject } from "./stack/convert-project.ts";
import { deployProject, type DeployOptions } from "./stack/deploy.ts";
import { servicesFound } from "./stack/held.ts";
import { ignoredOptions } from "./stack/ignored.ts";
import { plainOf } from "./stack/located.ts";
import { checkedStackName, stackLabel } from "./stack/names.ts";
import { loadProject, type Project } from "./stack/project.ts";
import { removeStack } from "./stack/remove.ts";
import { View } from "./stack/view.ts";
import { yamlText } from "./stack/yaml.ts";
import { printListing } from "./table.ts";
import { filterFlag, printTasks, taskListingOptions } from "./task/listing.ts";
import { UsageError, UserError } from "../lib/user-error.ts";
import { parseChoice } from "./values.ts";

const fileFlags = {
  "compose-file": {
    type: "string",
    short: "c",
    multiple: true,
    value: "FILE",
    help: "Path to a Compose file; - reads standard input",
  },
  "env-file": {
    type: "string",
    multiple: true,
    value: "FILE",
    help: "File with variables for interpolation (default: .env beside the first Compose file)",
  },
} as const;

interface FileValues {
  readonly "compose-file"?: string[] | undefined;
  readonly "env-file"?: string[] | undefined;
}

function project(values: FileValues, shell: Shell, isInterpolationSkipped = false): Project {
  const files = values["compose-file"] ?? [];
  if (files.length === 0) throw new UsageError("--compose-file is required");
  const envFiles = values["env-file"];
  return loadProject({
    files,
    ...(envFiles === undefined ? {} : { envFiles }),
    environment: process.env,
    isInterpolationSkipped,
    warn: (text) => shell.remark(`warning: ${text}`),
  });
}

/** Resolves when all services have converged; waits for them concurrently. An interrupt ends the wait. */
async function untilAllConverged(
  client: ManagerClient,
  shell: Shell,
  stack: string,
  ids: readonly string[],
  isQuiet: boolean,
): Promise<void> {
  if (ids.length === 0) return;
  // Loaded only here: it takes as long as the rest of the command, which --detach does not need.
  const { untilConverged } = await import("./progress.ts");
  const names = new Map((await listServices(client)).map((service) => [service.id, serviceName(service)]));
  const interrupt = new AbortController();
  // One listener per service, and stacks have many services.
  setMaxListeners(0, interrupt.signal);
  const onInterrupt = (): void => {
    shell.remark("Operation continuing in background.");
    shell.remark(`Use 'muster stack ps ${stack}' to check progress.`);
    interrupt.abort();
  };
  process.once("SIGINT", onInterrupt);
  const waits = ids.map(async (id) => {
    await untilConverged(client, shell, id, { quiet: true, signal: interrupt.signal });
    if (!isQuiet && !interrupt.signal.aborted) shell.remark(`${names.get(id) ?? id}: converged`);
  });
  const outcomes = await Promise.allSettled(waits);
  process.off("SIGINT", onInterrupt);
  const failures = outcomes.flatMap((outcome, at) => {
    if (outcome.status === "fulfilled") return [];
    const { reason } = outcome as { readonly reason: unknown };
    if (!(reason instanceof UserError)) throw reason;
    return [`service ${names.get(ids[at] ?? "") ?? ""}: ${reason.message}`];
  });
  if (failures.length > 0) throw new UserError(failures.join("; "));
}

const deploy = command({
  operands: "STACK",
  min: 1,
  max: 1,
  summary: "Deploy a stack from Compose files, or update one that is already deployed.",
  options: {
    ...fileFlags,
    prune: { type: "boolean", help: "Prune services that are no longer in the files" },
    detach: { type: "boolean", short: "d", help: "Exit immediately instead of waiting for the services to converge" },
    quiet: { type: "boolean", short: "q", help: "Suppress progress output" },
    "with-registry-auth": { type: "boolean", help: "Send registry authentication details to the nodes" },
    "resolve-image": {
      type: "string",
      value: "WHEN",
      help: "When to replace an image pinned to a digest by the file's: always, changed or never",
    },
  },
  run: ({ values, operands, shell }) => {
    const stack = checkedStackName(operands[0] as string);
    const choices = { always: "always", changed: "changed", never: "never" } as const;
    const resolveImage = parseChoice(values["resolve-image"] ?? "always", "resolve-image", choices);
    const loaded = project(values, shell);
    const view = new View(loaded.tree, "");
    if (view.child("services").keys.length === 0) throw new UserError("the Compose files define no services");
    const isQuiet = values.quiet === true;
    const warn = (text: string): void => shell.remark(`warning: ${text}`);
    for (const text of ignoredOptions(view)) warn(text);
    const options: DeployOptions = {
      stack,
      isPruning: values.prune === true,
      isAuthSent: values["with-registry-auth"] === true,
      resolveImage,
      print: (text) => {
        if (!isQuiet) shell.print(text);
      },
      warn,
    };
    return withManager(shell, async (client) => {
      const changed = await deployProject(client, loaded, options);
      if (values.detach !== true) await untilAllConverged(client, shell, stack, changed, isQuiet);
    });
  },
});

/** Escapes dollar signs, so that the output can be deployed. */
function escaped(value: unknown): unknown {
  if (typeof value === "string") return value.replaceAll("$", "$$$$");
  if (Array.isArray(value)) return value.map(escaped);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, escaped(item)]));
}

/** The customary order. */
const sectionOrder = ["name", "version", "services", "networks", "volumes", "secrets", "configs"];

const config = command({
  summary: "Print Compose files merged, with their variables filled in; fails where 'stack deploy' would.",
  options: {
    ...fileFlags,
    "skip-interpolation": { type: "boolean", help: "Skip interpolation and output only the merged files" },
    format: { type: "string", value: "FORMAT", help: "Output format: yaml or json" },
  },
  run: ({ values, shell }) => {
    const format = values.format ?? "yaml";
    if (format !== "yaml" && format !== "json")
      throw new UsageError(`invalid argument "${format}" for "--format" flag: expected yaml or json`);
    const isRaw = values["skip-interpolation"] === true;
    const loaded = project(values, shell, isRaw);
    // Uninterpolated variables are valid only in strings, so other values would fail the check.
    if (!isRaw) checkProject(loaded);
    const { tree } = loaded;
    const plain = (isRaw ? plainOf(tree) : escaped(plainOf(tree))) as Record<string, unknown>;
    const keys = [...sectionOrder, ...Object.keys(plain).filter((key) => !sectionOrder.includes(key))];
    const whole = Object.fromEntries(keys.filter((key) => key in plain).map((key) => [key, plain[key]]));
    shell.print(format === "json" ? JSON.stringify(whole, null, 4) : yamlText(whole).trimEnd());
    return Promise.resolve();
  },
});

const ls = command({
  summary: "List stacks.",
  options: listingOptions,
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const counts = new Map<string, number>();
      for (const { spec } of await listServices(client)) {
        const stack = spec?.annotations?.labels[stackLabel];
        if (stack !== undefined) counts.set(stack, (counts.get(stack) ?? 0) + 1);
      }
      const rows = [...counts].toSorted(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
      printListing(
        shell,
        {
          headings: ["NAME", "SERVICES"],
          rows: rows.map(([name, count]) => ({ id: name, cells: [name, String(count)], object: () => ({}) })),
        },
        values,
      );
    }),
});

const ps = command({
  operands: "STACK",
  min: 1,
  max: 1,
  summary: "List the tasks of a stack, including past ones.",
  options: taskListingOptions,
  run: ({ values, operands, shell }) =>
    withManager(shell, (client) =>
      printTasks(client, shell, values, async () => {
        const services = await servicesFound(client, operands[0] as string);
        return ListTasksRequest_Filters.create({ serviceIds: services.map(({ id }) => id) });
      }),
    ),
});

const services = command({
  operands: "STACK",
  min: 1,
  max: 1,
  summary: "List the services of a stack.",
  options: { ...listingOptions, filter: { ...filterFlag, help: "Filter by id=, name=, label= or mode=" } },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const found = (await servicesFound(client, operands[0] as string)).filter(matching(values.filter ?? []));
      printListing(shell, await serviceListing(client, found), values);
    }),
});

const rm = command({
  operands: "STACK [STACK...]",
  min: 1,
  summary:
    "Remove one or more stacks: their services and, once the tasks have ended, their secrets, configs and networks.",
  options: {
    detach: { type: "boolean", short: "d", help: "Exit immediately instead of waiting for the tasks to end" },
  },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      for (const stack of operands.map(checkedStackName)) {
        const isFound = await removeStack(client, stack, {
          isDetached: values.detach === true,
          print: (text) => shell.print(text),
          remark: (text) => shell.remark(text),
        });
        if (!isFound) shell.remark(`Nothing found in stack: ${stack}`);
      }
    }),
});

export const commands: Readonly<Record<string, Command>> = { deploy, ls, ps, services, config, rm };
