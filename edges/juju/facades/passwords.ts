/** Permissions to set passwords: users and agents set their own, and an agent's superiors that of the agent (reference §3). */
import type { LoginName } from "../../../runtime/ports/json-api.ts";
import type { Call, Facade, FacadeSources, Method } from "../facade.ts";
import { RequestError } from "../request-error.ts";

/** SetPassword of an entity. `nameOf`: the identity at the time of the call. */
export function settingPassword(
  { setPassword }: FacadeSources,
  nameOf: (call: Call) => LoginName,
  allows: (call: Call) => boolean,
): Method {
  return {
    // Agents need no role, and read-only users may change their own password.
    needs: "read-only",
    allows,
    async run(call) {
      const password = call.params.text("password");
      if (password === "") throw new RequestError("password is empty", "bad request");
      await setPassword(nameOf(call), password, call.rpc);
      return {};
    },
  };
}

/** The seed's type for users: each user may access only itself, by its tag, and learns no other name. */
export function userFacade(sources: FacadeSources): Facade {
  const isItself = ({ id, session: { identity } }: Call): boolean =>
    identity.kind === "user" && id === `user-${identity.name}`;
  const nameOf = ({ id }: Call): LoginName => ({ kind: "user", name: id.slice("user-".length) });
  return {
    type: "User",
    versions: [0],
    shape: "V0",
    isUnlisted: true,
    who: "users",
    id: "entity",
    admits: isItself,
    methods: {
      Get: { needs: "read-only", run: () => ({}) },
      SetPassword: settingPassword(sources, nameOf, isItself),
    },
  };
}
