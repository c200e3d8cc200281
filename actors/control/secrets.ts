/** Control's secret methods. The data goes in and never comes out. */
import { matchesEither } from "../../machines/list-filters.ts";
import { invalid, refuse } from "../../machines/refusal.ts";
import { redactedSecret } from "../../machines/redaction.ts";
import { checkLabelsOnly, checkNotReferenced, checkSecretSpec, relabelled } from "../../machines/validation/secret.ts";
import {
  CreateSecretResponse,
  GetSecretResponse,
  ListSecretsResponse,
  RemoveSecretResponse,
  Secret,
  SecretSpec,
  UpdateSecretResponse,
} from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { Environment } from "../environment.ts";
import { demand, demandGiven, notFound, rejection } from "./answer.ts";
import type { ControlHandlers } from "./handlers.ts";
import { atVersion, commit, creation, removal, replacement, stored } from "./write.ts";

type SecretHandlers = Pick<
  ControlHandlers,
  "GetSecret" | "ListSecrets" | "CreateSecret" | "UpdateSecret" | "RemoveSecret"
>;

export function secretHandlers(env: Environment): SecretHandlers {
  const { store } = env;
  const random = env.random.fork("control/secrets");

  function secretOf(id: string): Secret | undefined {
    if (id === "") throw rejection(invalid("secret ID must be provided"));
    return store.get("secret", id);
  }

  return {
    GetSecret({ secretId }) {
      const secret = secretOf(secretId);
      if (secret === undefined) throw notFound("secret", secretId);
      return GetSecretResponse.create({ secret: redactedSecret(secret) });
    },

    ListSecrets({ filters }) {
      const secrets: Secret[] = [];
      for (const secret of store.all("secret")) {
        const { name = "", labels = {} } = secret.spec?.annotations ?? {};
        const isShown = filters === null || matchesEither(filters, { id: secret.id, name, labels });
        if (isShown && !secret.internal) secrets.push(redactedSecret(secret));
      }
      return ListSecretsResponse.create({ secrets });
    },

    async CreateSecret({ spec }, call) {
      demand(checkSecretSpec(spec));
      const name = spec?.annotations?.name ?? "";
      const taken = (): RpcError => rejection(refuse("already-exists", `secret ${name} already exists`));
      if (store.byName("secret", name) !== undefined) throw taken();
      const secret = Secret.create({ id: newId(random), spec });
      try {
        await commit(env, call, creation("secret", secret));
      } catch (error) {
        throw error instanceof RpcError && error.code === Status.ALREADY_EXISTS ? taken() : error;
      }
      return CreateSecretResponse.create({ secret: redactedSecret(stored(env, "secret", secret)) });
    },

    async UpdateSecret({ secretId, secretVersion, spec }, call) {
      demandGiven(secretId, secretVersion, spec);
      if (secretVersion === null || spec === null) throw rejection(invalid("invalid argument"));
      const before = secretOf(secretId);
      if (before === undefined) throw notFound("secret", secretId);
      demand(checkLabelsOnly(before, spec));
      const after = Secret.patch(before, {
        spec: SecretSpec.patch(before.spec ?? spec, { annotations: relabelled(before.spec?.annotations, spec) }),
      });
      await commit(env, call, replacement("secret", atVersion("secret", after, secretVersion)));
      return UpdateSecretResponse.create({ secret: redactedSecret(stored(env, "secret", after)) });
    },

    async RemoveSecret({ secretId }, call) {
      const secret = secretOf(secretId);
      if (secret === undefined) throw new RpcError(Status.NOT_FOUND, `could not find secret ${secretId}`);
      demand(checkNotReferenced("secret", secret, store.all("service"), (id) => store.tasksByService(id)));
      await commit(env, call, removal("secret", secretId));
      return RemoveSecretResponse.create({});
    },
  };
}
