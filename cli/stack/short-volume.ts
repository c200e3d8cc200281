/** Short form of a service's `volumes`: `[SOURCE:]TARGET[:OPTION,…]`. */
import { child, mapping, mistake, scalar, textOf, withValues, type MappingNode, type Node } from "./located.ts";
import { absolutePath } from "./paths.ts";

const propagations = new Set(["rprivate", "private", "rshared", "shared", "rslave", "slave"]);

/** Splits at colons, except that of a Windows drive: a letter before `\\`, or before `/` when a path follows (`C:/a:/b`). */
function parts(text: string): readonly string[] {
  const words = text.split(":");
  const found: string[] = [];
  for (let at = 0; at < words.length; at += 1) {
    const [word = "", next = "", behind = ""] = words.slice(at);
    const isDrive =
      /^[A-Za-z]$/.test(word) && (next.startsWith("\\") || (next.startsWith("/") && /^[/\\]/.test(behind)));
    found.push(isDrive ? `${word}:${next}` : word);
    if (isDrive) at += 1;
  }
  return found;
}

function isPath(source: string): boolean {
  return /^(?:[./~]|\\\\|[A-Za-z]:[\\/])/.test(source);
}

function shortForm(node: Node, path: string): MappingNode {
  const text = textOf(node);
  const found = parts(text);
  const [first = "", second, options = ""] = found;
  if (found.length > 3 || found.includes("")) {
    throw mistake(node.at, path, `must be [SOURCE:]TARGET[:OPTIONS], not '${text}'`);
  }
  const [source, target] = second === undefined ? ["", first] : [first, second];
  const isBind = isPath(source);
  const at = (value: string | boolean): Node => scalar(value, node.at);
  let readOnly: boolean | undefined;
  let propagation: string | undefined;
  let nocopy: boolean | undefined;
  for (const option of options === "" ? [] : options.split(",")) {
    if (option === "ro") readOnly = true;
    else if (option === "rw") readOnly = false;
    else if (option === "nocopy") nocopy = true;
    else if (propagations.has(option)) propagation = option;
    // Like Docker, accepts relabelling and consistency options silently: they have no effect.
    else if (!["z", "Z", "cached", "delegated", "consistent"].includes(option)) {
      throw mistake(node.at, path, `has an invalid option '${option}': expected ro, rw, nocopy or a propagation`);
    }
  }
  return mapping(
    [
      ["type", at(isBind ? "bind" : "volume")],
      ["source", source === "" ? undefined : at(source)],
      ["target", at(target)],
      ["read_only", readOnly === undefined ? undefined : at(readOnly)],
      ["bind", propagation === undefined ? undefined : mapping([["propagation", at(propagation)]], node.at)],
      ["volume", nocopy === undefined ? undefined : mapping([["nocopy", at(nocopy)]], node.at)],
    ],
    node.at,
  );
}

/** The long form, with an absolute source for a bind mount. */
export function volumeOf(node: Node, path: string, folder: string): Node {
  const long = node.kind === "scalar" ? shortForm(node, path) : node;
  if (long.kind !== "mapping") return long;
  const type = child(long, "type");
  const source = child(long, "source");
  if (type === undefined || source === undefined || textOf(type) !== "bind") return long;
  return withValues(long, { source: scalar(absolutePath(textOf(source), folder), source.at) });
}
