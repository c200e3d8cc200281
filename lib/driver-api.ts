/** The version of the driver interface of Nomad's plugins, the only one there is: docs/reference/nomad-driver-protocol.md. */
export const driverApiVersion = "v0.1.0";
