/** The body of a network's creation. */
import { Annotations, Driver, IPAMConfig, IPAMOptions, NetworkSpec } from "../../../proto/gen/messages.ts";
import { checked, flag, list, map, object, shape, text, within, type Json } from "../shape.ts";

const ipamConfig = shape("network.IPAMConfig", IPAMConfig, {
  Subnet: text("subnet"),
  IPRange: text("range"),
  Gateway: text("gateway"),
  AuxiliaryAddresses: map("reserved"),
});

const ipam = shape(
  "network.IPAM",
  IPAMOptions,
  {
    Driver: within("driver", Driver, text("name")),
    Options: within("driver", Driver, map("options")),
    Config: list("configs", ipamConfig),
  },
  (read) => {
    const driver = read.driver ?? Driver.create({});
    return IPAMOptions.patch(read, { driver: Driver.patch(driver, { name: driver.name || "default" }) });
  },
);

export const networkBody = shape(
  "types.NetworkCreateRequest",
  NetworkSpec,
  {
    Name: within("annotations", Annotations, text("name")),
    Labels: within("annotations", Annotations, map("labels")),
    CheckDuplicate: checked(flag("checkDuplicate")),
    Driver: within("driverConfig", Driver, text("name")),
    Options: within("driverConfig", Driver, map("options")),
    Scope: checked(text("scope")),
    EnableIPv4: checked(flag("ipv4")),
    EnableIPv6: flag("ipv6Enabled"),
    IPAM: object("ipam", ipam),
    Internal: flag("internal"),
    Attachable: flag("attachable"),
    Ingress: flag("ingress"),
    ConfigOnly: checked(flag("configOnly")),
    ConfigFrom: {
      ...object("network", shape("network.ConfigReference", Annotations, { Network: text("name") })),
      put: (into, value) => (into["network"] = (value as Json)["Network"] ?? ""),
    },
  },
  (spec) => NetworkSpec.patch(spec, { annotations: spec.annotations ?? Annotations.create({}) }),
);
