/** Short form of a service's `ports`: `[[ADDRESS:]PUBLISHED:]TARGET[/PROTOCOL]`, with ranges. */
import { mapping, mistake, scalar, textOf, type Node } from "./located.ts";

const portMax = 65_535;

function range(text: string, node: Node, path: string): { readonly first: number; readonly size: number } {
  const [from = "", to = from] = text.split("-");
  const [first, last] = [Number(from), Number(to)];
  if (first < 1 || last > portMax) throw mistake(node.at, path, `has an invalid port: '${text}'`);
  if (last < first) throw mistake(node.at, path, `has an invalid range '${text}': the end is below the start`);
  return { first, size: last - first + 1 };
}

/** The long forms of an entry; an entry in long form stays. */
export function portsOf(node: Node, path: string): readonly Node[] {
  if (node.kind !== "scalar") return [node];
  const text = textOf(node);
  const match = /^(?:(?:(\[[\da-fA-F:.]+\]|[\d.]*):)?(\d+(?:-\d+)?)?:)?(\d+(?:-\d+)?)(?:\/(tcp|udp|sctp))?$/i.exec(
    text,
  );
  if (match === null) throw mistake(node.at, path, `must be [PUBLISHED:]TARGET[/PROTOCOL], not '${text}'`);
  const [, address = "", publishedText, targetText = "", protocol = "tcp"] = match;
  const target = range(targetText, node, path);
  const published = publishedText === undefined ? null : range(publishedText, node, path);
  const isOneTarget = target.size === 1;
  if (published !== null && published.size !== target.size && !isOneTarget) {
    throw mistake(node.at, path, `has ranges of different lengths: '${text}'`);
  }
  return Array.from({ length: published?.size ?? target.size }, (_, index) =>
    mapping(
      [
        ["mode", scalar("ingress", node.at)],
        ["host_ip", address === "" ? undefined : scalar(address.replace(/^\[(.*)\]$/, "$1"), node.at)],
        ["target", scalar(target.first + (isOneTarget ? 0 : index), node.at)],
        ["published", published === null ? undefined : scalar(published.first + index, node.at)],
        ["protocol", scalar(protocol.toLowerCase(), node.at)],
      ],
      node.at,
    ),
  );
}
