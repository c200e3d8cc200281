/**
 * `muster user`: add, ls, passwd, grant, disable, enable, rm, certificate. Users of the JSON API and of remote managers;
 * passwords are write-only.
 */
import {
  AddUserRequest,
  DisableUserRequest,
  GrantUserRequest,
  IssueUserCertificateRequest,
  ListUsersRequest,
  RemoveUserRequest,
  SetUserPasswordRequest,
  UserCertificatesService,
  UserEntry,
  UserRole,
  UsersService,
} from "../proto/gen/messages.ts";
import { timeMs } from "../proto/time.ts";
import { command, listingOptions, type Command } from "./command.ts";
import { UsageError } from "../lib/user-error.ts";
import { withManager } from "./manager-client.ts";
import { eachOperand } from "./operands.ts";
import { lifetimeOption, lifetimeSeconds } from "./remote/lifetime.ts";
import { printListing } from "./table.ts";
import { secretFrom } from "./secret-file.ts";
import { ago } from "./values.ts";

const methods = UsersService.methods;
const roles = {
  "read-only": UserRole.USER_ROLE_READ_ONLY,
  operator: UserRole.USER_ROLE_OPERATOR,
  admin: UserRole.USER_ROLE_ADMIN,
} as const;
const roleHelp = "read-only, operator or admin";

function roleOf(text: string): UserRole {
  const role = Object.entries(roles).find(([name]) => name === text)?.[1];
  if (role === undefined) throw new UsageError(`invalid role "${text}": expected ${roleHelp}`);
  return role;
}

function roleName(role: UserRole): string {
  return Object.entries(roles).find(([, each]) => each === role)?.[0] ?? "";
}

const passwordOptions = {
  "password-file": {
    type: "string",
    value: "FILE",
    help: "File whose first line is the password (default: standard input)",
  },
} as const;

const add = command({
  operands: "NAME",
  min: 1,
  max: 1,
  summary: "Add a user; the password is the first line of standard input or of a file.",
  options: {
    role: { type: "string", value: "ROLE", help: `${roleHelp} (read-only)` },
    "display-name": { type: "string", value: "TEXT", help: "Display name shown by clients of the JSON API" },
    ...passwordOptions,
  },
  completes: [],
  run: ({ values, operands: [name = ""], shell }) => {
    const role = roleOf(values.role ?? "read-only");
    const password = secretFrom(values["password-file"] ?? "-", "password");
    const request = AddUserRequest.create({ name, role, password, displayName: values["display-name"] ?? "" });
    return withManager(shell, async (client) => {
      await client.call(methods.AddUser, request);
      shell.print(name);
    });
  },
});

/** `now`: milliseconds since the Unix epoch. */
function statusOf({ disabled, registrationEndsAt }: UserEntry, now: number): string {
  if (disabled) return "disabled";
  if (registrationEndsAt === null) return "enabled";
  return now < timeMs(registrationEndsAt) ? "yet to register" : "registration expired";
}

const ls = command({
  summary: "List users with their roles and whether they have registered.",
  options: listingOptions,
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const { users } = await client.call(methods.ListUsers, ListUsersRequest.create({}));
      printListing(
        shell,
        {
          headings: ["NAME", "ROLE", "STATUS", "LAST LOGIN", "CREATED", "UPDATED"],
          rows: users
            .toSorted((left, right) => (left.name < right.name ? -1 : 1))
            .map((user) => ({
              id: user.name,
              cells: [
                user.name,
                roleName(user.role),
                statusOf(user, shell.now()),
                ago(user.lastLogin, shell.now()),
                ago(user.meta?.createdAt ?? null, shell.now()),
                ago(user.meta?.updatedAt ?? null, shell.now()),
              ],
              object: () => UserEntry.toJson(user),
            })),
        },
        values,
      );
    }),
});

const passwd = command({
  operands: "NAME",
  min: 1,
  max: 1,
  summary:
    "Change a user's password. JSON API sessions stay logged in; certificates of the user are void, and logins at the web interface end.",
  options: passwordOptions,
  completes: [],
  run: ({ values, operands: [name = ""], shell }) => {
    const request = SetUserPasswordRequest.create({
      name,
      password: secretFrom(values["password-file"] ?? "-", "password"),
    });
    return withManager(shell, async (client) => {
      await client.call(methods.SetUserPassword, request);
      shell.print(name);
    });
  },
});

const grant = command({
  operands: "NAME ROLE",
  min: 2,
  max: 2,
  summary: "Change a user's role; takes effect at once.",
  options: {},
  completes: [],
  run: ({ operands: [name = "", role = ""], shell }) => {
    const request = GrantUserRequest.create({ name, role: roleOf(role) });
    return withManager(shell, async (client) => {
      await client.call(methods.GrantUser, request);
      shell.print(name);
    });
  },
});

function able(disabled: boolean, summary: string): Command {
  return command({
    operands: "NAME [NAME...]",
    min: 1,
    summary,
    options: {},
    completes: [],
    run: ({ operands, shell }) =>
      withManager(shell, (client) =>
        eachOperand(operands, async (name) => {
          await client.call(methods.DisableUser, DisableUserRequest.create({ name, disabled }));
          shell.print(name);
        }),
      ),
  });
}
const disable = able(true, "Disable one or more users: end their connections and refuse their logins.");
const enable = able(false, "Enable one or more disabled users.");

const rm = command({
  operands: "NAME [NAME...]",
  min: 1,
  summary: "Remove one or more users and end their connections.",
  options: {},
  completes: [],
  run: ({ operands, shell }) =>
    withManager(shell, (client) =>
      eachOperand(operands, async (name) => {
        await client.call(methods.RemoveUser, RemoveUserRequest.create({ name }));
        shell.print(name);
      }),
    ),
});

const certificate = command({
  operands: "NAME",
  min: 1,
  max: 1,
  summary: "Issue a certificate with which a user drives managers from another machine.",
  options: {
    output: { type: "string", short: "o", value: "DIRECTORY", help: "Directory for ca.pem and credentials.pem" },
    lifetime: lifetimeOption,
  },
  completes: [],
  run: ({ values, operands: [name = ""], shell }) => {
    const { output } = values;
    if (output === undefined)
      throw new UsageError("--output is required: the directory for the certificate and its key");
    const seconds = lifetimeSeconds(values.lifetime);
    return withManager(shell, async (client) => {
      const [{ createKeyAndCsr }, { writeCredentials, writeRoots }] = await Promise.all([
        import("../lib/pki/index.ts"),
        import("./remote/credentials.ts"),
      ]);
      const { keyPem, csrPem } = await createKeyAndCsr();
      const csr = new TextEncoder().encode(csrPem);
      const {
        certificate: chain,
        notAfter,
        rootCertificates,
      } = await client.call(
        UserCertificatesService.methods.IssueUserCertificate,
        IssueUserCertificateRequest.create({ name, csr, lifetimeSeconds: seconds }),
      );
      const text = new TextDecoder();
      writeRoots(output, text.decode(rootCertificates));
      writeCredentials(output, { keyPem, certificatePem: text.decode(chain) });
      shell.print(`${output}: certificate of ${name}, valid until ${new Date(timeMs(notAfter)).toISOString()}`);
    });
  },
});

export const commands: Readonly<Record<string, Command>> = { add, certificate, ls, passwd, grant, disable, enable, rm };
