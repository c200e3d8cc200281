/** Filters of `muster watch` as users write them: `KEY=VALUE`, with names in place of ids. */
import {
  ControlService,
  ListConfigsRequest,
  ListSecretsRequest,
  NodeRole,
  NodeSpec_Membership,
  SelectBy,
  SelectByCustom,
  SelectBySlot,
  TaskState,
} from "../proto/gen/messages.ts";
import { UsageError } from "../lib/user-error.ts";
import { findNetwork, findNode, findService, type ManagerClient } from "./manager-client.ts";
import { NotThereError, notThere } from "../lib/user-error.ts";

/** Looks up the ids of names. */
export interface Names {
  id(noun: "service" | "node" | "network" | "secret" | "config", text: string): Promise<string>;
}

type Parse = (value: string, names: Names) => Partial<SelectBy> | Promise<Partial<SelectBy>>;

function oneOf<Value extends number>(key: string, value: string, words: Readonly<Record<string, Value>>): Value {
  const found = Object.entries(words).find(([word]) => word.toLowerCase() === value.toLowerCase())?.[1];
  if (found !== undefined) return found;
  const known = Object.keys(words).map((word) => word.toLowerCase());
  throw new UsageError(`invalid filter "${key}=${value}": expected one of ${known.join(", ")}`);
}

function custom(key: string, value: string): SelectByCustom {
  const at = value.indexOf(":");
  if (at <= 0) throw new UsageError(`invalid filter "${key}=${value}": expected INDEX:VALUE`);
  return SelectByCustom.create({ index: value.slice(0, at), value: value.slice(at + 1) });
}

const keys: Readonly<Record<string, Parse>> = {
  id: (id) => ({ id }),
  "id-prefix": (idPrefix) => ({ idPrefix }),
  name: (name) => ({ name }),
  "name-prefix": (namePrefix) => ({ namePrefix }),
  index: (value) => ({ custom: custom("index", value) }),
  "index-prefix": (value) => ({ customPrefix: custom("index-prefix", value) }),
  service: async (value, names) => ({ serviceId: await names.id("service", value) }),
  node: async (value, names) => ({ nodeId: await names.id("node", value) }),
  slot: async (value, names) => {
    const [, service, slot] = /^(.+)\.(\d+)$/.exec(value) ?? [];
    if (service === undefined) throw new UsageError(`invalid filter "slot=${value}": expected SERVICE.NUMBER`);
    return { slot: SelectBySlot.create({ serviceId: await names.id("service", service), slot: Number(slot) }) };
  },
  "desired-state": (value) => ({ desiredState: oneOf("desired-state", value, TaskState) }),
  role: (value) => ({ role: oneOf("role", value, NodeRole) }),
  membership: (value) => ({ membership: oneOf("membership", value, NodeSpec_Membership) }),
  network: async (value, names) => ({ referencedNetworkId: await names.id("network", value) }),
  secret: async (value, names) => ({ referencedSecretId: await names.id("secret", value) }),
  config: async (value, names) => ({ referencedConfigId: await names.id("config", value) }),
  kind: (kind) => ({ kind }),
};

export const filterKeys: readonly string[] = Object.keys(keys);

export async function selectorOf(filter: string, names: Names): Promise<SelectBy> {
  const at = filter.indexOf("=");
  const key = filter.slice(0, Math.max(at, 0));
  const parse = Object.hasOwn(keys, key) ? keys[key] : undefined;
  if (parse === undefined) throw new UsageError(`invalid filter "${filter}": expected ${filterKeys.join("=, ")}=`);
  return SelectBy.create(await parse(filter.slice(at + 1), names));
}

/** Removed or future objects can be watched by id. */
export function namesAt(client: ManagerClient, remark: (text: string) => void): Names {
  const finders: { readonly [Noun in Parameters<Names["id"]>[0]]: (text: string) => Promise<{ readonly id: string }> } =
    {
      service: (text) => findService(client, text),
      node: (text) => findNode(client, text),
      network: (text) => findNetwork(client, text),
      secret: async (text) => {
        const { secrets } = await client.call(ControlService.methods.ListSecrets, ListSecretsRequest.create({}));
        return named("secret", text, secrets);
      },
      config: async (text) => {
        const { configs } = await client.call(ControlService.methods.ListConfigs, ListConfigsRequest.create({}));
        return named("config", text, configs);
      },
    };
  return {
    async id(noun, text) {
      try {
        return (await finders[noun](text)).id;
      } catch (error) {
        if (!(error instanceof NotThereError)) throw error;
        remark(`${noun} "${text}" not found: using "${text}" as its id`);
        return text;
      }
    },
  };
}

interface Named {
  readonly id: string;
  readonly spec: { readonly annotations: { readonly name: string } | null } | null;
}

function named(noun: string, text: string, objects: readonly Named[]): Named {
  const found = objects.find(({ id }) => id === text) ?? objects.find(({ spec }) => spec?.annotations?.name === text);
  if (found === undefined) throw notThere(noun, text);
  return found;
}
