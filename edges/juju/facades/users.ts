/**
 * UserManager (version 0 of 1.24, which already used kebab-case here, and 1 to 3): the cluster's users. A new user is
 * read-only; further rights are granted as access to the model. A user may access itself, an admin everybody; nobody else can
 * find out whether a user exists.
 */
import {
  AddUserRequest,
  DisableUserRequest,
  GrantUserRequest,
  RemoveUserRequest,
  ResetUserRequest,
  UserRole,
  type User,
} from "../../../proto/gen/messages.ts";
import { type Call, type Facade, type FacadeSources, type Method, type Session } from "../facade.ts";
import { isAtLeast } from "../../../runtime/user-roles.ts";
import { ownerTag } from "../model.ts";
import type { Params } from "../params.ts";
import { permissionDenied, RequestError } from "../request-error.ts";
import { timeOf } from "../entities/views.ts";
import { verbatim } from "../results.ts";
import { bulk, type JsonFields } from "./bulk.ts";

/** Access to the model by role, in ascending order. */
const accesses = [
  [UserRole.USER_ROLE_READ_ONLY, "read"],
  [UserRole.USER_ROLE_OPERATOR, "write"],
  [UserRole.USER_ROLE_ADMIN, "admin"],
] as const;

function accessOf(role: UserRole): string | null {
  return accesses.find(([each]) => each === role)?.[1] ?? null;
}

/** Bytes in Go's JSON. */
const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");
const nameOf = ({ id }: User): string => id.slice("user-".length);
const isSelf = ({ identity }: Session, name: string): boolean => identity.kind === "user" && identity.name === name;
const isAdmin = ({ identity }: Session): boolean => identity.kind === "user" && isAtLeast(identity.role, "admin");
const lastConnection = ({ lastLogin }: User): string | null => timeOf(lastLogin) || null;

/** The name in a user's tag; Juju's own users are in the domain `local`. */
function named(entity: Params, key = "tag"): string {
  const tag = entity.text(key);
  if (!tag.startsWith("user-") || tag.length > 200) {
    throw new RequestError(`${JSON.stringify(tag.slice(0, 200))} is not a valid user tag`, "bad request");
  }
  return tag.slice("user-".length).replace(/@local$/, "");
}

/** The users that the caller may see. */
function knownUsers({ store }: Pick<FacadeSources, "store">, session: Session): readonly User[] {
  return [...store.all("user")].filter(
    (user) => accessOf(user.role) !== null && (isAdmin(session) || isSelf(session, nameOf(user))),
  );
}

/** The users in ModelInfo. */
export function modelUsers(sources: Pick<FacadeSources, "store">, session: Session): readonly JsonFields[] {
  return knownUsers(sources, session).map((user) => ({
    user: nameOf(user),
    "display-name": user.displayName || nameOf(user),
    access: accessOf(user.role),
    "last-connection": lastConnection(user),
  }));
}

/** The caller's previous login; null: never. */
export function ownLastConnection(sources: Pick<FacadeSources, "store">, session: Session): string | null {
  const own = knownUsers(sources, session).find((user) => isSelf(session, nameOf(user)));
  return own === undefined ? null : lastConnection(own);
}

function infoOf(user: User): JsonFields {
  const last = lastConnection(user);
  return {
    username: nameOf(user),
    "display-name": user.displayName || nameOf(user),
    access: user.role === UserRole.USER_ROLE_ADMIN ? "superuser" : "login",
    "created-by": ownerTag.slice("user-".length),
    "date-created": timeOf(user.meta?.createdAt),
    ...(last === null ? {} : { "last-connection": last }),
    disabled: user.disabled,
  };
}

export function userFacades(sources: FacadeSources): readonly Facade[] {
  const { users } = sources;

  /** A request that changes several users one by one, but never the caller. `change` returns the result. */
  const changing = (change: (name: string, call: Call) => Promise<JsonFields>): Method => ({
    needs: "admin",
    run: (call) =>
      bulk(call.params.objects("entities"), async (entity) => {
        const name = named(entity);
        if (isSelf(call.session, name))
          throw new RequestError("users cannot do this to themselves", "operation is blocked");
        return change(name, call);
      }),
  });

  const disabling = (disabled: boolean): Method =>
    changing(async (name, { rpc }) => {
      await users.DisableUser(DisableUserRequest.create({ name, disabled }), rpc);
      return {};
    });

  const methods: Record<string, Method> = {
    UserInfo: {
      needs: "read-only",
      async run({ params, session }) {
        const known = knownUsers(sources, session);
        const asked = params.objects("entities");
        if (asked.length === 0) {
          const shown = known.filter(({ disabled }) => !disabled || params.flag("include-disabled"));
          return verbatim({ results: shown.map((user) => ({ result: infoOf(user) })) });
        }
        const results = await bulk(asked, (entity) => {
          const name = named(entity);
          const user = known.find((each) => nameOf(each) === name);
          if (user !== undefined) return { result: infoOf(user) };
          throw isAdmin(session) ? new RequestError(`user "${name}" not found`, "user not found") : permissionDenied();
        });
        return verbatim(results);
      },
    },
    AddUser: {
      needs: "admin",
      async run({ params, rpc, shape }) {
        const results = await bulk(params.objects("users"), async (user) => {
          const name = user.text("username");
          const password = user.text("password");
          const registers = password === "";
          if (registers && shape === "V0") throw new RequestError("a password is required", "not supported");
          const role = UserRole.USER_ROLE_READ_ONLY;
          const displayName = user.text("display-name");
          const request = AddUserRequest.create({ name, role, password, displayName, registers });
          const { registrationKey } = await users.AddUser(request, rpc);
          return { tag: `user-${name}`, ...(registers ? { "secret-key": base64(registrationKey) } : {}) };
        });
        return verbatim(results);
      },
    },
    SetPassword: {
      needs: "read-only",
      allows: ({ params, session }) =>
        isAdmin(session) || params.objects("changes").every((change) => isSelf(session, named(change))),
      run: ({ params, rpc }) =>
        bulk(params.objects("changes"), async (change) => {
          await sources.setPassword({ kind: "user", name: named(change) }, change.text("password"), rpc);
          return {};
        }),
    },
    // `juju change-user-password --reset`
    ResetPassword: {
      ...changing(async (name, { rpc }) => {
        const { registrationKey } = await users.ResetUser(ResetUserRequest.create({ name }), rpc);
        return { tag: `user-${name}`, "secret-key": base64(registrationKey) };
      }),
      versions: [2, 3],
    },
    DisableUser: disabling(true),
    EnableUser: disabling(false),
    RemoveUser: {
      ...changing(async (name, { rpc }) => {
        await users.RemoveUser(RemoveUserRequest.create({ name }), rpc);
        return {};
      }),
      versions: [1, 2, 3],
    },
  };
  const common = { type: "UserManager", who: "users", id: "none", methods } as const;
  return [
    { ...common, versions: [0], shape: "V0" },
    { ...common, versions: [1, 2, 3], shape: "V1" },
  ];
}

interface AccessWords {
  /** Names of the access levels, in the order of `roles`. */
  readonly accesses: readonly string[];
  readonly roles: readonly UserRole[];
  /** Throws RequestError. */
  check(change: Params): void;
}

/** Grants and revokes access, which is a role; a grant never lowers it. Revoking sets the next lower role. */
function modifying({ users, store }: FacadeSources, { accesses: words, roles, check }: AccessWords): Method {
  return {
    needs: "admin",
    run: ({ params, rpc, session }) =>
      bulk(params.objects("changes"), async (change) => {
        const name = named(change, "user-tag");
        check(change);
        if (isSelf(session, name)) throw new RequestError("users cannot do this to themselves", "operation is blocked");
        const wanted = words.indexOf(change.text("access"));
        const action = change.text("action");
        const role = store.get("user", `user-${name}`)?.role;
        const now = roles.findLastIndex((each) => role !== undefined && role >= each);
        if (role === undefined || now < 0) throw new RequestError(`user "${name}" not found`, "user not found");
        if (wanted < 0 || (action !== "grant" && action !== "revoke"))
          throw new RequestError(`expected access ${words.join(", ")} and action grant or revoke`, "bad request");
        if (action === "revoke" && wanted === 0)
          throw new RequestError("the lowest access cannot be revoked: disable or remove the user", "not supported");
        const after = roles[action === "grant" ? wanted : wanted - 1];
        const isChanged = action === "grant" ? wanted > now : wanted <= now;
        if (after !== undefined && isChanged)
          await users.GrantUser(GrantUserRequest.create({ name, role: after }), rpc);
        return {};
      }),
  };
}

/** ModelManager: access to the only model. */
export function modifyingAccess(sources: FacadeSources): Method {
  return modifying(sources, {
    accesses: accesses.map(([, access]) => access),
    roles: accesses.map(([role]) => role),
    check(change) {
      const tag = change.text("model-tag");
      if (tag !== `model-${sources.feed.view().model.id}`)
        throw new RequestError(`model ${JSON.stringify(tag)} not found`, "not found");
    },
  });
}

/** Controller: superusers are admins. */
export function modifyingControllerAccess(sources: FacadeSources): Method {
  return modifying(sources, {
    accesses: ["login", "superuser"],
    roles: [UserRole.USER_ROLE_READ_ONLY, UserRole.USER_ROLE_ADMIN],
    check: () => undefined,
  });
}
