/** Schema of a Compose service: the Compose Specification, plus version 3 files. */
import { any, choice, either, listOf, mapOf, nothing, number, object, text, boolean, whole, word } from "./shape.ts";

const texts = listOf(text);
const words = listOf(word);
const textOrTexts = either(text, texts);
/** A mapping, or a list of `KEY=VALUE`. */
export const pairs = either(mapOf(either(word, nothing)), texts);
const sizeOrNumber = either(number, text);
const command = either(nothing, text, words);
const options = mapOf(either(word, nothing));

const healthcheck = object({
  disable: boolean,
  interval: word,
  retries: whole,
  test: either(text, words),
  timeout: word,
  start_period: word,
  start_interval: word,
});

const fileGrant = either(text, object({ source: text, target: text, uid: word, gid: word, mode: either(whole, text) }));

const ulimits = mapOf(either(whole, object({ soft: whole, hard: whole }, "soft", "hard")));

const rollout = object({
  parallelism: { kind: "whole", min: 0 },
  delay: word,
  failure_action: choice("continue", "pause", "rollback"),
  monitor: word,
  max_failure_ratio: number,
  order: choice("start-first", "stop-first"),
});

const devices = listOf(
  object({ capabilities: texts, count: word, device_ids: words, driver: text, options: pairs }, "capabilities"),
);

const deploy = either(
  nothing,
  object({
    mode: choice("replicated", "global", "replicated-job", "global-job"),
    endpoint_mode: choice("vip", "dnsrr"),
    replicas: { kind: "whole", min: 0 },
    labels: pairs,
    rollback_config: either(nothing, rollout),
    update_config: either(nothing, rollout),
    resources: either(
      nothing,
      object({
        limits: either(nothing, object({ cpus: number, memory: word, pids: whole })),
        reservations: either(
          nothing,
          object({
            cpus: number,
            memory: word,
            generic_resources: listOf(
              object({
                discrete_resource_spec: object({ kind: text, value: { kind: "whole", min: 0 } }, "kind", "value"),
              }),
            ),
            devices,
          }),
        ),
      }),
    ),
    restart_policy: either(
      nothing,
      object({
        condition: choice("none", "on-failure", "any"),
        delay: word,
        max_attempts: { kind: "whole", min: 0 },
        window: word,
      }),
    ),
    placement: either(
      nothing,
      object({
        constraints: texts,
        preferences: listOf(object({ spread: text }, "spread")),
        max_replicas_per_node: { kind: "whole", min: 0 },
      }),
    ),
  }),
);

const port = object(
  {
    name: text,
    mode: choice("host", "ingress"),
    host_ip: text,
    target: { kind: "whole", min: 1, max: 65_535 },
    published: word,
    protocol: choice("tcp", "udp", "sctp"),
    app_protocol: text,
  },
  "target",
);

const volume = object(
  {
    type: choice("bind", "volume", "tmpfs", "cluster", "npipe", "image"),
    source: text,
    target: text,
    read_only: boolean,
    consistency: text,
    bind: object({
      propagation: choice("rprivate", "private", "rshared", "shared", "rslave", "slave"),
      create_host_path: boolean,
      recursive: choice("enabled", "disabled", "writable", "readonly"),
      selinux: choice("z", "Z"),
    }),
    volume: object({ labels: pairs, nocopy: boolean, subpath: text }),
    tmpfs: object({ size: sizeOrNumber, mode: word }),
    image: object({ subpath: text }),
    cluster: object({}),
  },
  "type",
);

const network = either(
  nothing,
  object({
    aliases: texts,
    interface_name: text,
    ipv4_address: text,
    ipv6_address: text,
    link_local_ips: texts,
    mac_address: text,
    driver_opts: options,
    priority: number,
    gw_priority: number,
  }),
);

const build = either(
  text,
  object({
    context: text,
    dockerfile: text,
    dockerfile_inline: text,
    entitlements: texts,
    args: pairs,
    ssh: either(text, mapOf(either(word, nothing)), texts),
    labels: pairs,
    cache_from: texts,
    cache_to: texts,
    no_cache: boolean,
    no_cache_filter: textOrTexts,
    additional_contexts: pairs,
    network: text,
    provenance: word,
    sbom: word,
    pull: boolean,
    target: text,
    shm_size: sizeOrNumber,
    extra_hosts: any,
    isolation: text,
    privileged: boolean,
    secrets: listOf(fileGrant),
    tags: texts,
    ulimits,
    platforms: texts,
  }),
);

const hook = object({ command, user: text, privileged: boolean, working_dir: text, environment: pairs }, "command");

const blockLimits = listOf(object({ path: text, rate: word }));

const envFile = object({ path: text, format: text, required: boolean }, "path");

export const service = object({
  annotations: pairs,
  attach: boolean,
  blkio_config: object({
    device_read_bps: blockLimits,
    device_read_iops: blockLimits,
    device_write_bps: blockLimits,
    device_write_iops: blockLimits,
    weight: whole,
    weight_device: listOf(object({ path: text, weight: whole })),
  }),
  build,
  cap_add: texts,
  cap_drop: texts,
  cgroup: choice("host", "private"),
  cgroup_parent: text,
  cgroupns_mode: text,
  command,
  configs: listOf(fileGrant),
  container_name: text,
  cpu_count: whole,
  cpu_percent: number,
  cpu_period: word,
  cpu_quota: word,
  cpu_rt_period: word,
  cpu_rt_runtime: word,
  cpu_shares: number,
  cpus: number,
  cpuset: word,
  credential_spec: object({ config: text, file: text, registry: text }),
  depends_on: either(
    texts,
    mapOf(
      object(
        {
          restart: boolean,
          required: boolean,
          condition: choice("service_started", "service_healthy", "service_completed_successfully"),
        },
        "condition",
      ),
    ),
  ),
  deploy,
  develop: any,
  device_cgroup_rules: texts,
  devices: listOf(either(text, object({ source: text, target: text, permissions: text }, "source"))),
  dns: textOrTexts,
  dns_opt: texts,
  dns_search: textOrTexts,
  domainname: text,
  entrypoint: command,
  env_file: either(text, listOf(either(text, envFile))),
  environment: pairs,
  expose: words,
  extends: either(text, object({ service: text, file: text }, "service")),
  external_links: texts,
  extra_hosts: either(mapOf(either(text, texts)), texts),
  gpus: either(choice("all"), listOf(any)),
  group_add: words,
  healthcheck: either(nothing, healthcheck),
  hostname: text,
  image: text,
  init: boolean,
  ipc: text,
  isolation: text,
  label_file: textOrTexts,
  labels: pairs,
  links: texts,
  logging: either(nothing, object({ driver: text, options })),
  mac_address: text,
  mem_limit: sizeOrNumber,
  mem_reservation: sizeOrNumber,
  mem_swappiness: whole,
  memswap_limit: sizeOrNumber,
  models: any,
  network_mode: text,
  networks: either(nothing, texts, mapOf(network)),
  oom_kill_disable: boolean,
  oom_score_adj: { kind: "whole", min: -1_000, max: 1_000 },
  pid: either(text, nothing),
  pids_limit: whole,
  platform: text,
  ports: listOf(either(word, port)),
  post_start: listOf(hook),
  pre_stop: listOf(hook),
  privileged: boolean,
  profiles: texts,
  provider: object({ type: text, options: any }, "type"),
  pull_policy: text,
  pull_refresh_after: text,
  read_only: boolean,
  restart: text,
  runtime: text,
  scale: { kind: "whole", min: 0 },
  secrets: listOf(fileGrant),
  security_opt: texts,
  shm_size: sizeOrNumber,
  stdin_open: boolean,
  stop_grace_period: word,
  stop_signal: word,
  storage_opt: any,
  sysctls: pairs,
  tmpfs: textOrTexts,
  tty: boolean,
  ulimits,
  use_api_socket: boolean,
  user: word,
  userns_mode: text,
  uts: text,
  volumes: listOf(either(text, volume)),
  volumes_from: texts,
  working_dir: text,
});
