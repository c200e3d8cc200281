/** What the docker driver, and a task of it, can be told. Names are those of Nomad's own driver where it has them. */
import { block, blocks, flag, list, map, number, text, type ConfigOf } from "../../edges/plugin/server/index.ts";

export const driverFields = {
  endpoint: text({ default: "unix:///var/run/docker.sock" }),
  allow_privileged: flag({ default: false }),
  /** Of the container that holds the network of a group of tasks. */
  infra_image: text({ default: "registry.k8s.io/pause:3.9" }),
  /** Empty: what the image says. */
  infra_command: list("string", { default: [] }),
  /** Seconds. */
  pull_timeout: number({ default: 300 }),
  /** Where the driver notes how far it has read each container's output. */
  state_dir: text(),
};

export const taskFields = {
  image: text({ required: true }),
  entrypoint: list("string"),
  /** The image's own, unless said. */
  command: text(),
  args: list("string", { default: [] }),
  work_dir: text(),
  hostname: text(),
  force_pull: flag({ default: false }),
  auth: block({ username: text(), password: text(), server_address: text() }),
  /** An engine's network; the host's choice where it makes one. */
  network_mode: text(),
  extra_hosts: list("string", { default: [] }),
  /** Labels of the group's ports that are published. */
  ports: list("string", { default: [] }),
  labels: map("string", { default: {} }),
  mount: blocks({
    type: text({ default: "bind" }),
    source: text(),
    target: text({ required: true }),
    readonly: flag({ default: false }),
  }),
  tmpfs: map("string", { default: {} }),
  init: flag({ default: false }),
  privileged: flag({ default: false }),
  cap_add: list("string", { default: [] }),
  cap_drop: list("string", { default: [] }),
  readonly_rootfs: flag({ default: false }),
  pids_limit: number({ default: 0 }),
  shm_size: number({ default: 0 }),
  sysctl: map("string", { default: {} }),
};

export type DriverConfig = ConfigOf<typeof driverFields>;
export type DockerConfig = ConfigOf<typeof taskFields>;
