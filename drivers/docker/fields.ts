/** Configuration of the docker driver and of its tasks. Names are those of Nomad's driver where it has them. */
import { block, blocks, flag, list, map, number, text, type ConfigOf } from "../../edges/plugin/server/index.ts";

export const driverFields = {
  endpoint: text({ default: "unix:///var/run/docker.sock" }),
  allow_privileged: flag({ default: false }),
  /** Image of the container that holds a group's network; default: built by this driver. */
  infra_image: text(),
  /** Empty: the image's. */
  infra_command: list("string", { default: [] }),
  /** Seconds. */
  pull_timeout: number({ default: 300 }),
  /** Where the driver records how far it has read each container's output. */
  state_dir: text(),
};

export const taskFields = {
  image: text({ required: true }),
  entrypoint: list("string"),
  /** Default: the image's. */
  command: text(),
  args: list("string", { default: [] }),
  work_dir: text(),
  hostname: text(),
  force_pull: flag({ default: false }),
  /** Pull the image; if that fails, use the local one. */
  refresh: flag({ default: false }),
  /** Value of X-Registry-Auth, instead of `auth`. */
  registry_auth: text(),
  auth: block({ username: text(), password: text(), server_address: text() }),
  /** A network of the engine. Default: the network that the host created, if any. */
  network_mode: text(),
  extra_hosts: list("string", { default: [] }),
  dns_servers: list("string", { default: [] }),
  dns_search_domains: list("string", { default: [] }),
  dns_options: list("string", { default: [] }),
  /** Labels of the group's ports to publish. */
  ports: list("string", { default: [] }),
  /** Container ports, and the node's ports that lead to them. */
  publish: blocks({
    target: number({ required: true }),
    published: number({ default: 0 }),
    protocol: text({ default: "tcp" }),
  }),
  labels: map("string", { default: {} }),
  mount: blocks({
    type: text({ default: "bind" }),
    source: text(),
    target: text({ required: true }),
    readonly: flag({ default: false }),
    bind_options: block({
      propagation: text(),
      non_recursive: flag({ default: false }),
      create_mountpoint: flag({ default: false }),
      read_only_non_recursive: flag({ default: false }),
      read_only_force_recursive: flag({ default: false }),
    }),
    volume_options: block({
      no_copy: flag({ default: false }),
      labels: map("string", { default: {} }),
      subpath: text(),
      driver_config: block({ name: text(), options: map("string", { default: {} }) }),
    }),
    /** Size in bytes, and permission bits. */
    tmpfs_options: block({ size: number({ default: 0 }), mode: number({ default: 0 }) }),
  }),
  tmpfs: map("string", { default: {} }),
  /** Default: the engine's. */
  init: flag(),
  tty: flag({ default: false }),
  interactive: flag({ default: false }),
  group_add: list("string", { default: [] }),
  security_opt: list("string", { default: [] }),
  privileged: flag({ default: false }),
  cap_add: list("string", { default: [] }),
  cap_drop: list("string", { default: [] }),
  readonly_rootfs: flag({ default: false }),
  pids_limit: number({ default: 0 }),
  shm_size: number({ default: 0 }),
  sysctl: map("string", { default: {} }),
  /** `soft:hard` by name. */
  ulimit: map("string", { default: {} }),
  /** Bytes of memory plus swap; -1: unlimited; 0: the engine's default; unset: equal to memory. */
  memory_swap: number(),
  /** Percent. */
  memory_swappiness: number(),
  /** Health check by the engine, instead of the image's; times in seconds. */
  healthcheck: block({
    test: list("string", { default: [] }),
    interval: number({ default: 0 }),
    timeout: number({ default: 0 }),
    retries: number({ default: 0 }),
    start_period: number({ default: 0 }),
    start_interval: number({ default: 0 }),
  }),
  logging: block({ type: text({ required: true }), config: map("string", { default: {} }) }),
};

export type DriverConfig = ConfigOf<typeof driverFields>;
export type DockerConfig = ConfigOf<typeof taskFields>;
