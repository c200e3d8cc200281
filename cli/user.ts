/** `muster user`: add, ls, passwd, grant, disable, enable, rm. Who may log in to the JSON API; passwords go in and are never shown. */
import {
  AddUserRequest,
  DisableUserRequest,
  GrantUserRequest,
  ListUsersRequest,
  RemoveUserRequest,
  SetUserPasswordRequest,
  UserEntry,
  UserRole,
  UsersService,
} from "../proto/gen/messages.ts";
import { timeMs } from "../proto/time.ts";
import { command, listingOptions, UsageError, type Command } from "./command.ts";
import { withManager } from "./manager-client.ts";
import { eachOperand } from "./operands.ts";
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
  if (role === undefined) throw new UsageError(`a role is ${roleHelp}, not '${text}'`);
  return role;
}

function roleName(role: UserRole): string {
  return Object.entries(roles).find(([, each]) => each === role)?.[0] ?? "";
}

const passwordOptions = {
  "password-file": { type: "string", value: "FILE", help: "where its first line is the password (standard input)" },
} as const;

const add = command({
  operands: "NAME",
  min: 1,
  max: 1,
  summary: "Adds a user; the password is the first line of standard input or of a file.",
  options: {
    role: { type: "string", value: "ROLE", help: `${roleHelp} (read-only)` },
    "display-name": { type: "string", value: "TEXT", help: "what clients of the JSON API show beside the name" },
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
  summary: "Lists users, what they may do, and who has yet to register.",
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
  summary: "Gives a user another password; who is logged in stays so.",
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
  summary: "Gives a user another role, which counts at once.",
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
const disable = able(true, "Ends the connections of users and refuses their logins.");
const enable = able(false, "Lets users that were disabled log in again.");

const rm = command({
  operands: "NAME [NAME...]",
  min: 1,
  summary: "Removes users and ends their connections.",
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

export const commands: Readonly<Record<string, Command>> = { add, ls, passwd, grant, disable, enable, rm };
