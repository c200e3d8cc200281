/** Commands that do the same for each of several objects: one that fails does not keep the others from it, as in Docker. */
import { RpcError } from "../runtime/rpc.ts";
import type { Shell } from "./shell.ts";
import { printInspected, type Inspected } from "./table.ts";
import { UserError } from "./user-error.ts";

/** Throws UserError with a sentence for each that failed, when all have been tried. */
export async function eachOperand<Operand = string>(
  operands: readonly Operand[],
  work: (operand: Operand) => Promise<void>,
): Promise<void> {
  const failures: Error[] = [];
  for (const operand of operands) {
    try {
      await work(operand);
    } catch (error) {
      // Alone, it is told as it is; what is nobody's to mend ends everything at once.
      if (operands.length === 1 || !(error instanceof UserError || error instanceof RpcError)) throw error;
      failures.push(error);
    }
  }
  const [first] = failures;
  if (failures.length === 1 && first !== undefined) throw first;
  if (failures.length > 1) throw new UserError(failures.map(({ message }) => message).join("\nmuster: "));
}

/** Shows those that are found. `find` may give null for one that went in between. */
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
  // As Docker's does, which prints an empty list before the error.
  if (outcome.status === "fulfilled" || found.length > 0 || format === undefined) printInspected(shell, found, format);
  await all;
}
