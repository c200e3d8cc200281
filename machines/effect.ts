/** How a machine names what it asks of the world without doing it. */

/**
 * The body of an action that the host must supply with `machine.provide`. Throws when nobody did, so that a forgotten
 * effect is loud; `transition()` still shows the action with its params as data.
 */
export function effect<Params = undefined>(name: string): (args: unknown, params: Params) => void {
  return () => {
    throw new Error(`effect ${name} is not provided`);
  };
}
