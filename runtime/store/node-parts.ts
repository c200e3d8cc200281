/** What nodes have in common, kept once: whatever was freshly decoded of one goes through here. */
import {
  EngineDescription,
  Network,
  NetworkAttachment,
  NodeDescription,
  NodeTLSInfo,
  type Node,
} from "../../proto/gen/messages.ts";
import { SharedMessages } from "./sharing.ts";

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

export class NodeParts {
  /** Of one version, its plugins and labels: a kilobyte or two. */
  readonly #engines = new SharedMessages(EngineDescription);
  /** The cluster's root, and who issued by it. */
  readonly #tlsInfos = new SharedMessages(NodeTLSInfo);
  /** Whole in each attachment. */
  readonly #networks = new SharedMessages(Network);

  /** Replaces parts of a node, or of a patch of one, that nobody else holds yet. */
  share(node: Mutable<Pick<Node, "description" | "attachments">>): void {
    const { description, attachments } = node;
    if (description !== null) {
      const { engine, tlsInfo } = description;
      node.description = NodeDescription.patch(description, {
        engine: engine === null ? null : this.#engines.shareEqual(engine),
        tlsInfo: tlsInfo === null ? null : this.#tlsInfos.shareEqual(tlsInfo),
      });
    }
    if (attachments.length === 0) return;
    node.attachments = attachments.map((attachment) => {
      const { network } = attachment;
      return network === null
        ? attachment
        : NetworkAttachment.patch(attachment, { network: this.#networks.share(network.id, network) });
    });
  }
}
