/** Commands that handle several objects: as in Docker, a failure of one does not skip the others. */
import { RpcError } from "../runtime/ports/rpc.ts";
import type { Shell } from "./shell.ts";
import { printInspected, type Inspected } from "./table.ts";
import { UserError } from "../lib/user-error.ts";

/** Throws UserError with one line per failure, after all have been tried. */
export async function eachOperand<Operand = string>(
  operands: readonly Operand[],
  work: (operand: Operand) => Promise<void>,
): Promise<void> {
  const failures: Error[] = [];
  for (const operand of operands) {
    try {
      await work(operand);
    } catch (error) {
      // A single failure is rethrown unchanged; an internal error aborts the loop.
      if (operands.length === 1 || !(error instanceof UserError || error instanceof RpcError)) throw error;
      failures.push(error);
    }
  }
  const [first] = failures;
  if (failures.length === 1 && first !== undefined) throw first;
  if (failures.length > 1) throw new UserError(failures.map(({ message }) => message).join("\nmuster: "));
}

/** Prints the objects found. `find` may return null for one that was removed meanwhile. */
export async function inspectEach<Item>(
  {
    format,
    operands,
    shell,
  }: { readonly shell: Shell; readonly operands: readonly string[]; readonly format: string | undefined },
  find: (operand: string) => Promise<Item | null>,
  show: (item: Item) => Inspected,
): Promise<void> {
  const found: Inspected[] = [];
  const all = eachOperand(operands, async (operand) => {
    const item = await find(operand);
    if (item !== null) found.push(show(item));
  });
  const [outcome] = await Promise.allSettled([all]);
  // Like Docker's, which prints an empty list before the error.
  if (outcome.status === "fulfilled" || found.length > 0 || format === undefined) printInspected(shell, found, format);
  await all;
}
