/**
 * Ids of log subscriptions as nodes get them. SwarmKit's message has no field for a trace, and to a node the id is opaque: a traced
 * subscription's has the trace context appended, which Muster's agents continue. Ids themselves have no underscore.
 */

interface NodeSubscription {
  readonly id: string;
  /** W3C trace context; empty: none. */
  readonly traceparent: string;
}

/** `traceparent`: of the subscription's span; empty if it is not recorded. */
export const idForNodes = ({ id, traceparent }: NodeSubscription): string =>
  traceparent === "" ? id : `${id}_${traceparent}`;

export function subscriptionOfNode(text: string): NodeSubscription {
  const end = text.indexOf("_");
  return end === -1 ? { id: text, traceparent: "" } : { id: text.slice(0, end), traceparent: text.slice(end + 1) };
}
