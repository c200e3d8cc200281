/** Checks of users' names, passwords and roles. */
import { UserRole } from "../../proto/gen/messages.ts";
import { invalid, type Refusal } from "../refusal.ts";

/** The names that Juju's clients accept. */
const namePattern = /^[a-zA-Z0-9](?:[a-zA-Z0-9.+-]{0,62}[a-zA-Z0-9])?$/;
/** Minimum of NIST SP 800-63B §5.1.1.2. The maximum bounds the cost of hashing. */
const passwordBytesMin = 8;
const passwordBytesMax = 1_024;
/** Display names are shown on one line. */
const displayNameBytesMax = 256;
/** Juju's clients use this name for anonymous logins, which Muster does not have. */
const anonymous = "jujuanonymous";

export function checkUserName(name: string): Refusal | null {
  if (!namePattern.test(name)) {
    return invalid(
      "invalid user name: expected 1 to 64 letters, digits, '.', '+' and '-' that begin and end with a letter or digit",
    );
  }
  return name === anonymous ? invalid(`user name "${anonymous}" is reserved; choose another`) : null;
}

export function checkDisplayName(name: string): Refusal | null {
  return new TextEncoder().encode(name).length > displayNameBytesMax
    ? invalid(`display name is too long: the limit is ${displayNameBytesMax} bytes`)
    : null;
}

export function checkPassword(password: string): Refusal | null {
  const bytes = new TextEncoder().encode(password).length;
  if (bytes === 0) return invalid("password is empty");
  if (bytes < passwordBytesMin) return invalid(`password is too short: use at least ${passwordBytesMin} bytes`);
  return bytes > passwordBytesMax ? invalid(`password is too long: the limit is ${passwordBytesMax} bytes`) : null;
}

/** Users who register choose a password then, so none may be given when they are added. */
export function checkNoPassword(password: string): Refusal | null {
  return password === "" ? null : invalid("cannot set a password: the user chooses one when registering; omit it");
}

export function checkRole(role: UserRole): Refusal | null {
  return role === UserRole.USER_ROLE_READ_ONLY ||
    role === UserRole.USER_ROLE_OPERATOR ||
    role === UserRole.USER_ROLE_ADMIN
    ? null
    : invalid("invalid role: expected read-only, operator or admin");
}
