/** Compose options without effect in a cluster: reported once, not rejected, like in Docker. */
import type { View } from "./view.ts";

/** Options for a single engine, for builds or for development. */
const ignoredOfService: readonly string[] = [
  "annotations",
  "attach",
  "blkio_config",
  "build",
  "cgroup",
  "cgroup_parent",
  "cgroupns_mode",
  "container_name",
  "cpu_count",
  "cpu_percent",
  "cpu_period",
  "cpu_quota",
  "cpu_rt_period",
  "cpu_rt_runtime",
  "cpu_shares",
  "cpuset",
  "develop",
  "device_cgroup_rules",
  "devices",
  "domainname",
  "external_links",
  "gpus",
  "ipc",
  "links",
  "mac_address",
  "mem_swappiness",
  "memswap_limit",
  "models",
  "network_mode",
  "oom_kill_disable",
  "pid",
  "platform",
  "post_start",
  "pre_stop",
  "privileged",
  "provider",
  "pull_policy",
  "pull_refresh_after",
  "runtime",
  "security_opt",
  "shm_size",
  "storage_opt",
  "use_api_socket",
  "userns_mode",
  "uts",
  "volumes_from",
];
const ignoredOfNetwork: readonly string[] = [
  "gw_priority",
  "interface_name",
  "ipv4_address",
  "ipv6_address",
  "link_local_ips",
  "mac_address",
  "priority",
];

/** One message per kind. */
export function ignoredOptions(project: View): readonly string[] {
  const services = [...project.children("services").values()];
  const ignored = new Set<string>();
  for (const service of services) {
    for (const key of ignoredOfService) if (service.has(key)) ignored.add(key);
    for (const network of service.children("networks").values()) {
      for (const key of ignoredOfNetwork) if (network.has(key)) ignored.add(`networks.${key}`);
    }
    if (service.child("deploy").child("resources").child("reservations").has("devices"))
      ignored.add("deploy.resources.reservations.devices");
  }
  const remarks: string[] = [];
  if (ignored.size > 0) remarks.push(`Ignoring unsupported options: ${[...ignored].toSorted().join(", ")}`);
  const addresses = services.flatMap((service) => service.items("ports")).filter((port) => port.has("host_ip"));
  if (addresses.length > 0) {
    const all = [...new Set(addresses.map((port) => port.text("host_ip")))].toSorted().join(", ");
    remarks.push(`ignoring the host IPs of ports (${all}): a service's ports are published on all addresses of a node`);
  }
  if (project.has("models")) remarks.push("ignoring 'models'");
  return remarks;
}
