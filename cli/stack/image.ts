/** An image's name as Docker's client sends it, so that one file makes one spec whoever deploys it. */
import { isImageReference } from "../../machines/image-reference.ts";

/** Docker's own registry, under the names that mean it. */
const hub = /^(?:docker\.io|index\.docker\.io)\/(?:library\/)?/;

/** `docker.io/library/nginx` is `nginx:latest`; what has a tag or digest keeps it, what is no reference stays as it is. */
export function taggedImage(image: string): string {
  if (!isImageReference(image)) return image;
  const short = image.replace(hub, "").replace(/^library\/(?=[^/]+$)/, "");
  const isNameAlone = !short.includes("@") && !/:[^/]+$/.test(short);
  return isNameAlone ? `${short}:latest` : short;
}
