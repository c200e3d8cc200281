/** Normalizes image names like Docker's client, so that one file yields one spec for everyone. */
import { isImageReference } from "../../machines/image-reference.ts";

/** Names of Docker's own registry. */
const hub = /^(?:docker\.io|index\.docker\.io)\/(?:library\/)?/;

/** `docker.io/library/nginx` → `nginx:latest`; a tag or digest is kept, and an invalid reference unchanged. */
export function taggedImage(image: string): string {
  if (!isImageReference(image)) return image;
  const short = image.replace(hub, "").replace(/^library\/(?=[^/]+$)/, "");
  const isNameAlone = !short.includes("@") && !/:[^/]+$/.test(short);
  return isNameAlone ? `${short}:latest` : short;
}
