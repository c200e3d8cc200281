/**
 * What Juju's clients want told of an operating system: the cluster does not know what its nodes were installed from, and
 * clients refuse names that they do not know, so that all are the same one.
 */

/** Of 3.x. */
export const base = "ubuntu@22.04";
export const baseName = "ubuntu";
export const baseChannel = "22.04/stable";
/** What stands where clients want the name of a cloud or of its provider. */
export const platformName = "muster";
/** Of 1.x and 2.x. */
export const series = "jammy";
/** The agents' version in answers that are alike for clients of all versions. */
export const entityVersion = "3.5.2";
