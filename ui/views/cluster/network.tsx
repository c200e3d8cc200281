/** A network: its addresses, and the services that are attached to it. */
import { useState } from "preact/hooks";
import { objects, version } from "../../cluster-state.ts";
import { versionOf } from "../../model/cluster/objects.ts";
import { serviceName } from "../../model/cluster/services.ts";
import { formOf } from "../../model/cluster/spec-form.ts";
import { NetworkSpec } from "../../../proto/gen/cluster.ts";
import { ActorLinks } from "./actor-links.tsx";
import { NetworkRemoval } from "./network-form.tsx";
import { linkTo, OpenButton } from "./parts.tsx";
import { SpecView } from "./spec.tsx";
import { Why } from "./why.tsx";

export function NetworkDetail({ id }: { readonly id: string }) {
  void version.value;
  const [isRemoving, setRemoving] = useState(false);
  const network = objects.value.networks.get(id);
  if (network === undefined)
    return <p class="empty">There is no network with the id {id}. It may have been removed.</p>;
  const { driverState, ipam, spec } = network;
  const services = [...objects.value.services.values()].filter(
    (service) => service.spec !== null && formOf(service.spec).networks.includes(id),
  );
  const kinds = [
    spec?.ingress === true ? "ingress" : "",
    spec?.attachable === true ? "attachable" : "",
    spec?.internal === true ? "internal" : "",
    spec?.ipv6Enabled === true ? "IPv6" : "",
  ];
  const facts: readonly (readonly [string, string])[] = [
    ["Driver", driverState?.name || spec?.driverConfig?.name || ""],
    ["Kind", kinds.filter(Boolean).join(", ")],
    ...(ipam?.configs ?? []).map(
      ({ gateway, subnet }) => ["Subnet", `${subnet}${gateway === "" ? "" : `, gateway ${gateway}`}`] as const,
    ),
    [
      "Options",
      Object.entries(driverState?.options ?? {})
        .map(([name, value]) => `${name}=${value}`)
        .join(", "),
    ],
    ["Id", id],
  ];
  return (
    <>
      <h2>{spec?.annotations?.name ?? id}</h2>
      <dl class="facts">
        {facts.map(
          ([name, text]) =>
            text !== "" && (
              <>
                <dt>{name}</dt>
                <dd>{text}</dd>
              </>
            ),
        )}
      </dl>
      <p class="buttons">
        <OpenButton action="removeNetwork" isOpen={isRemoving} onClick={() => setRemoving(!isRemoving)}>
          Remove …
        </OpenButton>
      </p>
      {isRemoving && <NetworkRemoval network={network} onClose={() => setRemoving(false)} />}
      <Why id={id} changes={versionOf(network)} />
      <h3>
        Services <small>{services.length}</small>
      </h3>
      {services.length === 0 && <p class="empty">No service is attached to it.</p>}
      <ul class="links">
        {services.map((service) => (
          <li key={service.id}>
            <a href={linkTo("service", service.id)}>{serviceName(service)}</a>
          </li>
        ))}
      </ul>
      <ActorLinks id={id} />
      <SpecView codec={NetworkSpec} spec={spec} />
    </>
  );
}
