/** What names, passwords and roles of users may be. */
import { UserRole } from "../../proto/gen/messages.ts";
import { invalid, type Refusal } from "../refusal.ts";

/** The names that Juju's clients take. */
const namePattern = /^[a-zA-Z0-9](?:[a-zA-Z0-9.+-]{0,62}[a-zA-Z0-9])?$/;
/** NIST SP 800-63B §5.1.1.2: 8 characters at least. The most is what keeps a request from being work. */
const passwordBytesMin = 8;
const passwordBytesMax = 1_024;
/** It is shown in a line. */
const displayNameBytesMax = 256;
/** Juju's clients log in with it where nobody has a name; here everybody has. */
const anonymous = "jujuanonymous";

export function checkUserName(name: string): Refusal | null {
  if (!namePattern.test(name)) {
    return invalid(
      "a user's name is 1 to 64 letters, digits, '.', '+' and '-', and begins and ends with a letter or digit",
    );
  }
  return name === anonymous ? invalid(`the name ${anonymous} is for nobody`) : null;
}

export function checkDisplayName(name: string): Refusal | null {
  return new TextEncoder().encode(name).length > displayNameBytesMax
    ? invalid(`a display name has at most ${displayNameBytesMax} bytes`)
    : null;
}

export function checkPassword(password: string): Refusal | null {
  const bytes = new TextEncoder().encode(password).length;
  if (bytes === 0) return invalid("password is empty");
  if (bytes < passwordBytesMin) return invalid(`a password has at least ${passwordBytesMin} bytes`);
  return bytes > passwordBytesMax ? invalid(`a password has at most ${passwordBytesMax} bytes`) : null;
}

/** Of a user who registers. */
export function checkNoPassword(password: string): Refusal | null {
  return password === "" ? null : invalid("a user who registers is added without a password");
}

export function checkRole(role: UserRole): Refusal | null {
  return role === UserRole.USER_ROLE_READ_ONLY ||
    role === UserRole.USER_ROLE_OPERATOR ||
    role === UserRole.USER_ROLE_ADMIN
    ? null
    : invalid("a user's role is read-only, operator or admin");
}
