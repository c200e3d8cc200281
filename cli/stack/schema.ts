/** Schema of a whole Compose file. */
import { any, either, listOf, mapOf, nothing, object, text, boolean, word, type Shape } from "./shape.ts";
import { pairs, service } from "./schema-service.ts";

const options = mapOf(either(word, nothing));
/** Valid names of services, networks and other objects. */
const names = /^[A-Za-z0-9._-]+$/;
const external = either(boolean, object({ name: text }));

const network = either(
  nothing,
  object({
    name: text,
    driver: text,
    driver_opts: options,
    ipam: object({
      driver: text,
      config: listOf(object({ subnet: text, ip_range: text, gateway: text, aux_addresses: mapOf(text) })),
      options: mapOf(word),
    }),
    external,
    internal: boolean,
    enable_ipv4: boolean,
    enable_ipv6: boolean,
    attachable: boolean,
    labels: pairs,
  }),
);

const volume = either(nothing, object({ name: text, driver: text, driver_opts: options, external, labels: pairs }));

const secret = object({
  name: text,
  environment: text,
  file: text,
  external,
  labels: pairs,
  driver: text,
  driver_opts: options,
  template_driver: text,
});

const config = object({
  name: text,
  content: text,
  environment: text,
  file: text,
  external,
  labels: pairs,
  template_driver: text,
});

const include = either(
  text,
  object({ path: either(text, listOf(text)), env_file: either(text, listOf(text)), project_directory: text }, "path"),
);

export const composeFile: Shape = object({
  version: word,
  name: text,
  include: listOf(include),
  services: either(nothing, mapOf(service, names)),
  models: any,
  networks: either(nothing, mapOf(network, names)),
  volumes: either(nothing, mapOf(volume, names)),
  secrets: either(nothing, mapOf(secret, names)),
  configs: either(nothing, mapOf(config, names)),
});
