/** Shares the parts that nodes have in common: every newly decoded node passes through here. */
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
  /** Version, plugins and labels: a kilobyte or two. */
  readonly #engines = new SharedMessages(EngineDescription);
  /** The cluster's root, and the issuer. */
  readonly #tlsInfos = new SharedMessages(NodeTLSInfo);
  /** Each attachment contains the whole network. */
  readonly #networks = new SharedMessages(Network);

  /** Replaces parts of a node, or of a patch, that is not shared yet. */
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
