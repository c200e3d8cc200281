/**
 * Operating system and cloud of every node, for Juju's clients: the cluster does not know how its nodes were installed, and
 * clients reject unknown names, so all nodes report the same.
 */

/** For 3.x. */
export const base = "ubuntu@22.04";
export const baseName = "ubuntu";
export const baseChannel = "22.04/stable";
/** Name of the cloud and of its provider. */
export const platformName = "muster";
/** For 1.x and 2.x. */
export const series = "jammy";
/** Version of agents, in replies that are the same for clients of all versions. */
export const entityVersion = "3.5.2";
