/** Shape of a request and its reply: `V0` is CamelCase, as in Juju 1.x and before; `V1` is kebab-case, as in 2.x and 3.x. */
export type Shape = "V0" | "V1";
