/** `/secrets` and `/configs`, which differ only in their names. */
import {
  ControlService,
  CreateConfigRequest,
  CreateSecretRequest,
  ListConfigsRequest,
  ListConfigsRequest_Filters,
  ListSecretsRequest,
  ListSecretsRequest_Filters,
  RemoveConfigRequest,
  RemoveSecretRequest,
  UpdateConfigRequest,
  UpdateSecretRequest,
  Version,
  type Config,
  type ConfigSpec,
  type Secret,
  type SecretSpec,
} from "../../../proto/gen/messages.ts";
import { configObject, secretObject } from "../../../lib/docker-objects/index.ts";
import type { OwnCalls } from "../../grpc/own-calls.ts";
import { isOlder } from "../api-version.ts";
import { configBody, secretBody } from "../bodies/content.ts";
import { badRequest } from "../failure.ts";
import type { Filters } from "../filters.ts";
import { findConfig, findSecret } from "../find.ts";
import { versionOf } from "../go-text.ts";
import { bodyOf, filtersOf, ok, writeList, type Handler } from "../request.ts";
import type { Shape } from "../shape.ts";

const { methods } = ControlService;

interface Kind<Found extends { readonly id: string }, Spec> {
  readonly noun: string;
  readonly filters: readonly string[];
  readonly body: Shape<Spec>;
  list(calls: OwnCalls, filters: Filters): Promise<readonly Found[]>;
  find(calls: OwnCalls, name: string): Promise<Found>;
  show(found: Found): unknown;
  create(calls: OwnCalls, spec: Spec): Promise<string>;
  update(calls: OwnCalls, id: string, version: Version, spec: Spec): Promise<unknown>;
  remove(calls: OwnCalls, id: string): Promise<unknown>;
}

interface Handlers {
  readonly list: Handler;
  readonly inspect: Handler;
  readonly create: Handler;
  readonly update: Handler;
  readonly remove: Handler;
}

function handlers<Found extends { readonly id: string }, Spec>(kind: Kind<Found, Spec>): Handlers {
  const { body, find, noun } = kind;
  return {
    list: async (request) =>
      writeList(request, await kind.list(request.calls, filtersOf(request).accept(kind.filters)), kind.show),
    inspect: async ({ calls, name }) => ok(kind.show(await find(calls, name))),
    async create(request) {
      const given = await bodyOf(request, body);
      if ((given["Templating"] ?? null) !== null && isOlder(request.version, "1.37"))
        throw badRequest(`${noun} templating is not supported on the specified API version: ${request.version}`);
      return { status: 201, body: { ID: await kind.create(request.calls, body.read(given)) } };
    },
    async update(request) {
      const given = await bodyOf(request, body);
      const index = versionOf(request.query, noun, true);
      const { id } = await find(request.calls, request.name);
      await kind.update(request.calls, id, Version.create({ index }), body.read(given));
      return ok();
    },
    async remove({ calls, name }) {
      await kind.remove(calls, (await find(calls, name)).id);
      return { status: 204 };
    },
  };
}

export const secrets = handlers<Secret, SecretSpec>({
  noun: "secret",
  filters: ["names", "name", "id", "label"],
  body: secretBody,
  find: findSecret,
  show: secretObject,
  list: async (calls, filters) =>
    (
      await calls.unary(
        methods.ListSecrets,
        ListSecretsRequest.create({
          filters: ListSecretsRequest_Filters.create({
            names: filters.of("names"),
            namePrefixes: filters.of("name"),
            idPrefixes: filters.of("id"),
            labels: filters.pairs("label"),
          }),
        }),
      )
    ).secrets,
  create: async (calls, spec) =>
    (await calls.unary(methods.CreateSecret, CreateSecretRequest.create({ spec }))).secret?.id ?? "",
  update: (calls, secretId, secretVersion, spec) =>
    calls.unary(methods.UpdateSecret, UpdateSecretRequest.create({ secretId, secretVersion, spec })),
  remove: (calls, secretId) => calls.unary(methods.RemoveSecret, RemoveSecretRequest.create({ secretId })),
});

export const configs = handlers<Config, ConfigSpec>({
  noun: "config",
  filters: ["name", "id", "label"],
  body: configBody,
  find: findConfig,
  show: configObject,
  list: async (calls, filters) =>
    (
      await calls.unary(
        methods.ListConfigs,
        ListConfigsRequest.create({
          filters: ListConfigsRequest_Filters.create({
            namePrefixes: filters.of("name"),
            idPrefixes: filters.of("id"),
            labels: filters.pairs("label"),
          }),
        }),
      )
    ).configs,
  create: async (calls, spec) =>
    (await calls.unary(methods.CreateConfig, CreateConfigRequest.create({ spec }))).config?.id ?? "",
  update: (calls, configId, configVersion, spec) =>
    calls.unary(methods.UpdateConfig, UpdateConfigRequest.create({ configId, configVersion, spec })),
  remove: (calls, configId) => calls.unary(methods.RemoveConfig, RemoveConfigRequest.create({ configId })),
});
