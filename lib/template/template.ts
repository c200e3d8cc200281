/**
 * Go's template language, for the `--format` of commands and the templates of tasks. A template can access only the data and
 * functions that are passed to it, and always terminates: there is no recursion, and steps, output and the size of each value
 * are bounded (`budget.ts`).
 */
import { checkedSize, TemplateBudget, valueMax } from "./budget.ts";
import { fieldValue } from "./empty.ts";
import { goTypeOf, TemplateError, type Failed } from "./error.ts";
import { goFunctions, type TemplateFunctions } from "./functions.ts";
import { parse } from "./parser.ts";
import { isMap, isStruct, isTrue, kindOf, sortedEntries, sprint, textOf } from "./print.ts";
import type { Block, Command, Operand, Part, Pipeline } from "./tree.ts";

export { EmptyField } from "./empty.ts";
export { goType, TemplateError } from "./error.ts";
export { dockerFunctions, type TemplateFunction, type TemplateFunctions } from "./functions.ts";
export { jsonPart, jsonText } from "./print.ts";

export interface Template {
  /** Throws TemplateError if the data lacks something that the template needs, a function fails or a limit is reached. */
  execute(data: unknown): string;
}

/** For users who run their own templates, such as `--format`: about a second, and more output than any row of a listing. */
const ownBudget = { steps: 5_000_000, output: 16 * 1024 * 1024 };

interface TemplateOptions {
  /** The value of a missing map key: `<no value>`, or an error as in SwarmKit's task templates. */
  readonly missingKey?: "no value" | "error";
  /** Shared with other templates; by default, each execution has its own. */
  readonly budget?: TemplateBudget;
}

/**
 * Parses immediately, so that errors show before anything is done. `added` are functions in addition to Go's own. Throws
 * TemplateError.
 */
export function parseTemplate(text: string, added: TemplateFunctions = {}, options: TemplateOptions = {}): Template {
  const functions: TemplateFunctions = { ...goFunctions, ...added };
  const isFunction = (name: string): boolean => name === "and" || name === "or" || Object.hasOwn(functions, name);
  try {
    options.budget?.spend(0, text.length * parsingFactor);
  } catch (error) {
    throw new TemplateError(text, 0, (error as Error).message);
  }
  const parts = parse(text, isFunction);
  return { execute: (data) => new Run(text, functions, data, options).text(parts) };
}

/** Parsing a character costs about as much as copying eight. */
const parsingFactor = 8;

/** Total characters in the arguments of one call. */
const argumentsMax = 2 * valueMax;

type Flow = "on" | "break" | "continue";

/** A missing key or field of something that could have had it: Go prints it as `<no value>`. */
const missing = Symbol("missing");

interface Variable {
  readonly name: string;
  value: unknown;
}

class Run {
  readonly #template: string;
  readonly #functions: TemplateFunctions;
  readonly #variables: Variable[];
  readonly #data: unknown;
  readonly #isMissingFatal: boolean;
  readonly #budget: TemplateBudget;
  #output = "";

  constructor(template: string, functions: TemplateFunctions, data: unknown, options: TemplateOptions) {
    const { budget = new TemplateBudget(ownBudget), missingKey } = options;
    this.#budget = budget;
    this.#isMissingFatal = missingKey === "error";
    this.#template = template;
    this.#functions = functions;
    this.#data = data;
    this.#variables = [{ name: "", value: data }];
  }

  text(parts: readonly Part[]): string {
    this.#parts(parts, this.#data);
    return this.#output;
  }

  #error(
    at: number,
    reason: string,
    more: { cause?: unknown; failed?: Failed; goReason?: string } = {},
  ): TemplateError {
    return new TemplateError(this.#template, at, reason, { failed: { at, text: "" }, ...more });
  }

  #bounded<Result>(at: number, work: () => Result): Result {
    try {
      return work();
    } catch (error) {
      throw this.#error(at, (error as Error).message);
    }
  }

  #step(at: number, steps = 1): void {
    this.#bounded(at, () => this.#budget.spend(steps));
  }

  #write(text: string, at: number): void {
    this.#bounded(at, () => this.#budget.write(text.length));
    this.#output += text;
  }

  #parts(parts: readonly Part[], dot: unknown): Flow {
    for (const part of parts) {
      this.#step(0);
      if (part.kind === "text") {
        this.#write(part.text, 0);
        continue;
      }
      if (part.kind === "break" || part.kind === "continue") return part.kind;
      if (part.kind === "pipeline") {
        const { commands, variables } = part.pipeline;
        const value = this.#pipeline(part.pipeline, dot);
        // A declaration prints nothing.
        if (variables.length === 0) {
          const at = commands[0]?.at ?? 0;
          this.#bounded(at, () => this.#budget.spend(0, checkedSize(value)));
          this.#write(printed(value), at);
        }
        continue;
      }
      const held = this.#variables.length;
      const flow = part.kind === "range" ? this.#range(part, dot) : this.#choice(part as Block, dot);
      this.#variables.length = held;
      if (flow !== "on") return flow;
    }
    return "on";
  }

  #choice(part: Block, dot: unknown): Flow {
    const value = this.#pipeline(part.pipeline, dot);
    if (value === missing || !isTrue(value)) return this.#parts(part.otherwise, dot);
    return this.#parts(part.body, part.kind === "with" ? value : dot);
  }

  #range(part: Block, dot: unknown): Flow {
    const { pipeline } = part;
    const value = this.#value(pipeline.commands, dot);
    const held = this.#variables.length;
    let isEmpty = true;
    for (const [key, item] of this.#entries(value, pipeline)) {
      isEmpty = false;
      this.#step(pipeline.at);
      const { variables, isAssignment } = pipeline;
      const values = variables.length === 2 ? [key, item] : [item];
      for (const [at, name] of variables.entries()) this.#bind(name, values[at], isAssignment);
      const flow = this.#parts(part.body, item);
      this.#variables.length = held;
      if (flow === "break") break;
    }
    return isEmpty ? this.#parts(part.otherwise, dot) : "on";
  }

  #entries(value: unknown, { at, commands }: Pipeline): Iterable<readonly [unknown, unknown]> {
    if (Array.isArray(value)) return value.entries();
    if (isMap(value)) {
      this.#step(at, value.size);
      return sortedEntries(value);
    }
    if (value === null || value === undefined || value === missing) return [];
    if (typeof value === "number" && Number.isInteger(value)) return numbersBelow(value);
    const [command] = commands;
    throw this.#error(at, `range can't iterate over ${kindOf(value)}`, {
      goReason: `range can't iterate over ${sprint([value])}`,
      ...(command === undefined ? {} : { failed: failedCommand(command) }),
    });
  }

  #bind(name: string, value: unknown, isAssignment: boolean): void {
    const found = isAssignment ? this.#variable(name) : undefined;
    if (found === undefined) this.#variables.push({ name, value });
    else found.value = value;
  }

  #variable(name: string): Variable | undefined {
    return this.#variables.findLast((variable) => variable.name === name);
  }

  #pipeline({ commands, isAssignment, variables }: Pipeline, dot: unknown): unknown {
    const value = this.#value(commands, dot);
    for (const name of variables) this.#bind(name, value === missing ? null : value, isAssignment);
    return value;
  }

  #value(commands: readonly Command[], dot: unknown): unknown {
    let value: unknown;
    for (const [at, command] of commands.entries()) value = this.#command(command, dot, at === 0 ? [] : [value]);
    return value;
  }

  #command(command: Command, dot: unknown, piped: readonly unknown[]): unknown {
    const { at, operands } = command;
    const [first, ...rest] = operands;
    if (first === undefined || first.kind === "nil")
      throw this.#error(at, "nil is not a command", { failed: failedCommand(command) });
    const values = (): readonly unknown[] =>
      [...rest.map((operand) => this.#operand(operand, dot)), ...piped].map((value) =>
        value === missing ? undefined : value,
      );
    if (first.kind === "function") return this.#call(first.name, failedCommand(command), rest, dot, piped, values);
    const value = this.#operand(first, dot);
    if (typeof value === "function")
      return this.#invoke(
        value as (...values: readonly unknown[]) => unknown,
        "method",
        failedOperand(first, this.#template),
        values(),
      );
    if (rest.length > 0 || piped.length > 0) {
      const name = first.kind === "fields" ? first.names.at(-1) : undefined;
      throw this.#error(first.at, "can't give argument to non-function", {
        failed: failedOperand(first, this.#template),
        ...(name === undefined ? {} : { goReason: `${name} has arguments but cannot be invoked as function` }),
      });
    }
    return value;
  }

  #call(
    name: string,
    failed: Failed,
    rest: readonly Operand[],
    dot: unknown,
    piped: readonly unknown[],
    values: () => readonly unknown[],
  ): unknown {
    this.#step(failed.at);
    if (name !== "and" && name !== "or") return this.#invoke(this.#functions[name], name, failed, values());
    if (rest.length + piped.length === 0)
      throw this.#error(failed.at, `wrong number of arguments for ${name}: want at least 1, got 0`, {
        failed,
        goReason: `wrong number of args for ${name}: want at least 1 got 0`,
      });
    let value: unknown;
    for (const operand of rest) {
      value = this.#operand(operand, dot);
      if (value === missing) value = undefined;
      if (isTrue(value) === (name === "or")) return value;
    }
    return piped.length > 0 ? piped[0] : value;
  }

  #invoke(
    call: ((...values: readonly unknown[]) => unknown) | undefined,
    name: string,
    failed: Failed,
    values: readonly unknown[],
  ): unknown {
    try {
      let read = 0;
      for (const value of values) read += checkedSize(value);
      if (read > argumentsMax) throw new Error(`the arguments exceed ${argumentsMax} characters`);
      this.#budget.spend(0, read);
      const result = call?.(...values);
      // Computed fields of the data only return what the caller's data contains: only values created here can grow.
      if (typeof result !== "function") this.#budget.spend(0, checkedSize(result));
      return result;
    } catch (error) {
      const { message } = error as Error;
      throw this.#error(failed.at, `error calling ${name}: ${message}`, { cause: error, failed });
    }
  }

  #operand(operand: Operand, dot: unknown): unknown {
    this.#step(operand.at);
    switch (operand.kind) {
      case "dot":
        return dot;
      case "nil":
        return null;
      case "literal":
        return operand.value;
      case "fields":
        return this.#fields(dot, operand.names, operand);
      case "variable": {
        const found = this.#variable(operand.name);
        return this.#fields(found?.value, operand.names, operand);
      }
      case "group": {
        const held = this.#variables.length;
        const value = this.#pipeline(operand.pipeline, dot);
        this.#variables.length = held;
        return this.#fields(value === missing ? undefined : value, operand.names, operand);
      }
      case "function":
        return this.#call(operand.name, { at: operand.at, text: operand.name }, [], dot, [], () => []);
    }
  }

  #fields(from: unknown, names: readonly string[], operand: Operand): unknown {
    let value = from;
    for (const [place, name] of names.entries()) {
      value = this.#field(value, name, operand);
      // A method in the middle of a chain takes no arguments.
      if (typeof value === "function" && place < names.length - 1) {
        const failed = failedOperand(operand, this.#template);
        value = this.#invoke(value as (...values: readonly unknown[]) => unknown, name, failed, []);
      }
    }
    return value;
  }

  #field(value: unknown, name: string, operand: Operand): unknown {
    const { at } = operand;
    const fail = (reason: string, goReason = reason): TemplateError =>
      this.#error(at, reason, { failed: failedOperand(operand, this.#template), goReason });
    if (isMap(value)) {
      if (value.has(name)) return value.get(name);
      if (this.#isMissingFatal) throw fail(`map has no entry for key "${name}"`);
      return missing;
    }
    if (value === missing || value === null || value === undefined) throw fail(`nil pointer evaluating .${name}`);
    const type = goTypeOf(value) ?? kindOf(value);
    const goReason = `can't evaluate field ${name} in type ${type}`;
    if (!isStruct(value)) throw fail(goReason);
    // Own properties only: nothing inherited from JavaScript.
    if (!Object.hasOwn(value, name)) throw fail(`can't evaluate field ${name}: there is no such field`, goReason);
    return fieldValue(value[name]);
  }
}

/** A call is named as a whole; a lone operand by itself. */
function failedCommand({ at, operands, text }: Command): Failed {
  const [first] = operands;
  return operands.length === 1 && first !== undefined ? failedOperand(first, text, at) : { at, text };
}

/** `from`: start of `template`. */
function failedOperand(operand: Operand, template: string, from = 0): Failed {
  const { at } = operand;
  switch (operand.kind) {
    case "fields": {
      const [first = "", ...others] = operand.names;
      return { at: others.length === 0 ? at : at + first.length + 1, text: `.${operand.names.join(".")}` };
    }
    case "variable": {
      const whole = [`$${operand.name}`, ...operand.names].join(".");
      return { at: operand.names.length === 0 ? at : at + operand.name.length + 1, text: whole };
    }
    case "group": {
      const command = operand.pipeline.commands.at(-1);
      return command === undefined ? { at, text: "" } : failedCommand(command);
    }
    case "function":
      return { at, text: operand.name };
    case "dot":
      return { at, text: "." };
    case "nil":
      return { at, text: "nil" };
    case "literal":
      return { at, text: /^\S*/.exec(template.slice(at - from))?.[0] ?? "" };
  }
}

function* numbersBelow(end: number): Generator<readonly [number, number]> {
  for (let at = 0; at < end; at += 1) yield [at, at];
}

function printed(value: unknown): string {
  return value === missing
    ? "<no value>"
    : Array.isArray(value) || typeof value === "object"
      ? textOf(value)
      : sprint([value]);
}
