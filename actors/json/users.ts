/** The Users service: manages the users of the JSON API for the muster command. Passwords go in and never come out. */
import {
  hasRoomForRegistration,
  newRegistration,
  registrationsMax,
  secretKeyBytes,
} from "../../machines/json/registration.ts";
import { timeMs, timestampOf } from "../../proto/time.ts";
import {
  checkDisplayName,
  checkNoPassword,
  checkPassword,
  checkRole,
  checkUserName,
} from "../../machines/validation/user.ts";
import {
  ListUsersResponse,
  User,
  UserEntry,
  UserResponse,
  UserRole,
  type UsersService,
} from "../../proto/gen/messages.ts";
import type { LoginName } from "../../runtime/ports/json-api.ts";
import type { Passwords } from "../../runtime/ports/passwords.ts";
import { PasswordsBusy } from "../../runtime/ports/passwords.ts";
import { RpcError, Status, type Peer, type ServiceHandlers } from "../../runtime/ports/rpc.ts";
import { demand, notFound } from "../control/answer.ts";
import { creation, removal, replacement, transact, type Traced } from "../control/write.ts";
import type { Environment } from "../environment.ts";
import { passwordOf, recordId } from "./user-records.ts";

const entryOf = ({ id, role, meta, disabled, lastLogin, displayName, registration }: User): UserEntry =>
  UserEntry.create({
    name: id.slice("user-".length),
    role,
    meta,
    disabled,
    lastLogin,
    displayName,
    registrationEndsAt: registration?.endsAt ?? null,
  });

type UserEnvironment = Pick<Environment, "clock" | "proposer" | "random" | "store">;

async function hashed(passwords: Passwords, password: string): Promise<ReturnType<typeof passwordOf>> {
  try {
    return passwordOf(await passwords.hash(password));
  } catch (error) {
    if (error instanceof PasswordsBusy) throw new RpcError(Status.RESOURCE_EXHAUSTED, error.message);
    throw error;
  }
}

export function createUsers(
  env: UserEnvironment,
  passwords: Passwords,
): { readonly handlers: ServiceHandlers<typeof UsersService> } {
  const { clock, store } = env;
  const random = env.random.fork("secret keys of registrations");
  const idOf = (name: string): string => recordId({ kind: "user", name });

  function find(name: string): User {
    const found = store.get("user", idOf(name));
    if (found === undefined) throw notFound("user", name);
    return found;
  }

  function answer(name: string, otherwise: User): UserResponse {
    return UserResponse.create({ user: entryOf(store.get("user", idOf(name)) ?? otherwise) });
  }

  function demandRoom(id: string): void {
    if (!hasRoomForRegistration(store.all("user"), id, clock.now())) {
      throw new RpcError(
        Status.RESOURCE_EXHAUSTED,
        `${registrationsMax} users have not registered yet: wait for some of them, or remove some`,
      );
    }
  }

  async function change(name: string, call: Traced, patch: Partial<User>): Promise<UserResponse> {
    let changed = find(name);
    await transact(env, call, () => {
      changed = User.patch(find(name), patch);
      return [replacement("user", changed)];
    });
    return answer(name, changed);
  }

  return {
    handlers: {
      ListUsers() {
        const users = [...store.all("user")].filter(({ role }) => role !== UserRole.USER_ROLE_AGENT).map(entryOf);
        return ListUsersResponse.create({ users });
      },

      async AddUser({ name, role, password, displayName, registers }, call) {
        demand(checkUserName(name));
        demand(checkDisplayName(displayName));
        demand(checkRole(role));
        demand(registers ? checkNoPassword(password) : checkPassword(password));
        const refuseTaken = (): void => {
          if (store.get("user", idOf(name)) !== undefined)
            throw new RpcError(Status.ALREADY_EXISTS, `user ${name} already exists`);
        };
        refuseTaken();
        const user = User.create({ id: idOf(name), role, displayName });
        if (!registers) {
          const withPassword = User.patch(user, { password: await hashed(passwords, password) });
          await transact(env, call, () => {
            refuseTaken();
            return [creation("user", withPassword)];
          });
          return answer(name, withPassword);
        }
        const registration = newRegistration(random.bytes(secretKeyBytes), clock.now());
        const registering = User.patch(user, { registration });
        await transact(env, call, () => {
          refuseTaken();
          demandRoom(user.id);
          return [creation("user", registering)];
        });
        return UserResponse.patch(answer(name, registering), { registrationKey: registration.secretKey });
      },

      async ResetUser({ name }, call) {
        const registration = newRegistration(random.bytes(secretKeyBytes), clock.now());
        let reset = find(name);
        await transact(env, call, () => {
          const user = find(name);
          if (user.disabled)
            throw new RpcError(Status.FAILED_PRECONDITION, `user ${name} is disabled: enable it first`);
          demandRoom(user.id);
          reset = User.patch(user, { password: null, registration });
          return [replacement("user", reset)];
        });
        return UserResponse.patch(answer(name, reset), { registrationKey: registration.secretKey });
      },

      async SetUserPassword({ name, password }, call) {
        const before = find(name);
        await setPassword(env, passwords, { kind: "user", name }, password, call);
        return answer(name, before);
      },

      GrantUser({ name, role }, call) {
        demand(checkRole(role));
        return change(name, call, { role });
      },

      DisableUser: ({ name, disabled }, call) => change(name, call, { disabled }),

      async RemoveUser({ name }, call) {
        const user = find(name);
        await transact(env, call, () => [removal("user", find(name).id)]);
        return UserResponse.create({ user: entryOf(user) });
      },
    },
  };
}

/** Changes the password of an existing user, or sets that of the agent of a node or task. Throws RpcError. */
export async function setPassword(
  env: UserEnvironment,
  passwords: Passwords,
  name: LoginName,
  password: string,
  call: Traced,
): Promise<void> {
  demand(checkPassword(password));
  const id = recordId(name);
  const hash = await hashed(passwords, password);
  await transact(env, call, () => {
    const before = env.store.get("user", id);
    // RG1
    if (before !== undefined) return [replacement("user", User.patch(before, { password: hash, registration: null }))];
    if (name.kind === "user") throw notFound("user", name.name);
    return [creation("user", User.create({ id, role: UserRole.USER_ROLE_AGENT, password: hash }))];
  });
}

/** Precision of the last login, in milliseconds: limits the writes of a user who logs in all the time. */
const lastLoginMs = 60_000;

/** Records a login from that address, unless one was recorded recently. */
export async function noteLogin(env: UserEnvironment, name: string, address: string): Promise<void> {
  const { clock, store } = env;
  const id = recordId({ kind: "user", name });
  const isDue = (user: User | undefined): user is User =>
    user !== undefined && clock.now() - timeMs(user.lastLogin) >= lastLoginMs;
  if (!isDue(store.get("user", id))) return;
  const peer: Peer = { identity: null, local: false, address, user: id };
  await transact(env, { traceparent: "", peer, method: "Admin.Login" }, () => {
    const user = store.get("user", id);
    if (!isDue(user)) throw notFound("user", name);
    return [replacement("user", User.patch(user, { lastLogin: timestampOf(clock.now()) }))];
  });
}
