/** How a stack marks what is its own: Docker's names and labels, so that its clients and ours see the same stacks. */
import { UserError } from "../user-error.ts";

/** On everything that a stack makes. */
export const stackLabel = "com.docker.stack.namespace";
/** On a service: the image as the Compose file names it, without what a registry resolved it to. */
export const imageLabel = "com.docker.stack.image";
/** The network of services that name none. */
export const defaultNetwork = "default";

/** `front` of the stack `shop` is `shop_front`. */
export function scoped(stack: string, name: string): string {
  return `${stack}_${name}`;
}

export function withStackLabel(stack: string, labels: Readonly<Record<string, string>>): Record<string, string> {
  return { ...labels, [stackLabel]: stack };
}

/** Docker's rule: no names of blanks and quotes alone. Throws UserError. */
export function checkedStackName(name: string): string {
  if (name.trim() === "" || /^['"\s]+$/.test(name)) {
    throw new UserError(`invalid stack name '${name}': a stack's name has letters or digits in it`);
  }
  if (!/^[A-Za-z0-9][\w.-]*$/.test(name)) {
    throw new UserError(
      `invalid stack name '${name}': it begins what its services are called, so it begins with a letter or a digit and goes on with those, '-', '_' and '.'`,
    );
  }
  return name;
}
