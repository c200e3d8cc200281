/**
 * Whether a text can name a container image: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`, by the grammar of the OCI
 * distribution specification as Docker reads it (the path in lower case).
 */
const hostLabel = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
const host = `(?:${hostLabel}(?:\\.${hostLabel})*|\\[[0-9a-fA-F:]+\\])(?::[0-9]+)?`;
const pathPart = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
const name = `(?:${host}/)?${pathPart}(?:/${pathPart})*`;
const tag = "[\\w][\\w.-]{0,127}";
const digest = "[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}";
const reference = new RegExp(`^${name}(?::${tag})?(?:@${digest})?$`);
/** A bare 64-digit id is not a reference: Docker reserves those for image ids. */
const bareId = /^[a-f0-9]{64}$/;
/** Docker's limit for the name without tag and digest. */
const nameLengthMax = 255;

export function isImageReference(text: string): boolean {
  if (bareId.test(text) || !reference.test(text)) return false;
  return (text.split("@")[0] as string).replace(/:[\w][\w.-]*$/, "").length <= nameLengthMax;
}
