/** Names and labels of a stack's objects: Docker's, so that its clients and ours see the same stacks. */
import { UserError } from "../../lib/user-error.ts";

/** Label of every object of a stack. */
export const stackLabel = "com.docker.stack.namespace";
/** Label of a service: the image as named in the Compose file, before a registry resolved it. */
export const imageLabel = "com.docker.stack.image";
/** The network of services without a network of their own. */
export const defaultNetwork = "default";

/** `front` in the stack `shop` → `shop_front`; in no stack (empty): `front`. */
export function scoped(stack: string, name: string): string {
  return stack === "" ? name : `${stack}_${name}`;
}

export function withStackLabel(stack: string, labels: Readonly<Record<string, string>>): Record<string, string> {
  return stack === "" ? { ...labels } : { ...labels, [stackLabel]: stack };
}

/** Docker's rule: not only blanks and quotes. Throws UserError. */
export function checkedStackName(name: string): string {
  if (name.trim() === "" || /^['"\s]+$/.test(name)) {
    throw new UserError(`invalid stack name: "${name}"`);
  }
  if (!/^[A-Za-z0-9][\w.-]*$/.test(name)) {
    throw new UserError(
      `invalid stack name "${name}": it is the prefix of its services' names, so it must start with a letter or digit and contain only those, '-', '_' and '.'`,
    );
  }
  return name;
}
