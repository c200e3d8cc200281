/** How a machine names the effects that its host performs. */

/**
 * The body of an action that the host must supply with `machine.provide`. Throws if the host did not, so that a forgotten
 * effect fails loudly; `transition()` still shows the action with its params as data.
 */
export function effect<Params = undefined>(name: string): (args: unknown, params: Params) => void {
  return () => {
    throw new Error(`effect ${name} is not provided`);
  };
}
