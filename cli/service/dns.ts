/** DNS settings of a task from the flags of `service create` and `service update`, field by field like Docker's client. */
import { parseAddress } from "../../lib/ip-address.ts";
import { ContainerSpec_DNSConfig } from "../../proto/gen/messages.ts";
import { UsageError } from "../../lib/user-error.ts";
import type { CreateValues, UpdateValues } from "./flags.ts";

function nameServer(text: string, flag: string): string {
  const address = text.trim();
  if (parseAddress(address) === null)
    throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected an IP address`);
  return address;
}

function searchDomain(text: string, flag: string): string {
  const domain = text.trim();
  // A single dot: no search domain at all.
  if (domain === "." || /^[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?\.?$/i.test(domain)) return domain;
  throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected a domain`);
}

function setAfter(before: readonly string[], added: readonly string[], removed: readonly string[]): readonly string[] {
  return [...new Set([...before, ...added])].filter((item) => !removed.includes(item)).toSorted();
}

/** Absent parts are empty. Throws UsageError. */
export function newDns(flags: CreateValues): ContainerSpec_DNSConfig {
  return ContainerSpec_DNSConfig.create({
    nameservers: (flags.dns ?? []).map((text) => nameServer(text, "dns")),
    search: (flags["dns-search"] ?? []).map((text) => searchDomain(text, "dns-search")),
    options: flags["dns-option"] ?? [],
  });
}

/** Throws UsageError. */
export function dnsAfter(before: ContainerSpec_DNSConfig | null, flags: UpdateValues): ContainerSpec_DNSConfig | null {
  const given = [
    flags["dns-add"],
    flags["dns-rm"],
    flags["dns-option-add"],
    flags["dns-option-rm"],
    flags["dns-search-add"],
    flags["dns-search-rm"],
  ];
  if (given.every((values) => values === undefined)) return before;
  const servers = (flags["dns-add"] ?? []).map((text) => nameServer(text, "dns-add"));
  const domains = (flags["dns-search-add"] ?? []).map((text) => searchDomain(text, "dns-search-add"));
  return ContainerSpec_DNSConfig.create({
    nameservers: setAfter(before?.nameservers ?? [], servers, flags["dns-rm"] ?? []),
    search: setAfter(before?.search ?? [], domains, flags["dns-search-rm"] ?? []),
    options: setAfter(before?.options ?? [], flags["dns-option-add"] ?? [], flags["dns-option-rm"] ?? []),
  });
}

/** For tasks without a container: null without settings, so that other specs have no such field. */
export function processDns(dns: ContainerSpec_DNSConfig | null): ContainerSpec_DNSConfig | null {
  if (dns === null || dns.nameservers.length + dns.search.length + dns.options.length === 0) return null;
  return dns;
}
