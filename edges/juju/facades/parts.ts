/** Parts that the facades share: access to the cluster, the form of options, and unsupported requests. */
import type { ApplicationView } from "../entities/views.ts";
import type { Call, FacadeSources, Method, Role } from "../facade.ts";
import { namesAlone, seesValues } from "../redaction.ts";
import { keyed, verbatim, type Json } from "../results.ts";
import type { Actions } from "./actions.ts";
import type { AnnotationWork } from "./annotations.ts";
import type { ServiceWrites } from "./service-writes.ts";
import { notSupported, type Subjects } from "./subjects.ts";

export interface ClientParts {
  readonly sources: FacadeSources;
  readonly subjects: Subjects;
  readonly services: ServiceWrites;
  readonly annotations: AnnotationWork;
  readonly actions: Actions;
}

/** Methods that clients know and this cluster does not support; each replies `not supported` with the reason. */
export function refusing(reasons: Readonly<Record<string, string>>, needs: Role = "operator"): Record<string, Method> {
  return Object.fromEntries(
    Object.entries(reasons).map(([name, why]): [string, Method] => [
      name,
      {
        needs,
        run: () => {
          throw notSupported(why);
        },
      },
    ]),
  );
}

/** Options in the clients' form: name, value and type. */
export function configOf({ env }: ApplicationView, { session }: Pick<Call, "session">): Json {
  return keyed(
    Object.entries(seesValues(session) ? env : namesAlone(env)).map(
      ([name, value]) => [name, verbatim({ value, type: "string", default: false })] as const,
    ),
  );
}
