/** Explains why a node's certificate or role is waiting: the part of `muster why node/…` besides its session. */
import { isLive } from "../node.ts";
import { IssuanceStatus_State, NodeRole, Reason, type Manager, type Node } from "../../proto/gen/messages.ts";
import { certificateMachine } from "../certificates/certificate.machine.ts";
import { isIssuedBy } from "../certificates/issuer.ts";
import { issuanceState, isUnsigned } from "../certificates/issuance.ts";
import { demotionMachine, demotionTimes } from "../manager/demotion.machine.ts";
import { isDemoted } from "../manager/role.ts";
import { rootRotationLimits } from "../certificates/root-rotation.machine.ts";
import { waitOf, type StatePath } from "../wait-meta.ts";

export interface CertificateView {
  /** The node's manager record. */
  readonly manager: Manager | undefined;
  /** DER of the name and key of the next root; null outside a rotation. */
  readonly nextIssuer: { readonly subjectDer: Uint8Array; readonly publicKeyDer: Uint8Array } | null;
}

export function explainCertificate(node: Node, { manager, nextIssuer }: CertificateView): readonly Reason[] {
  const since = node.meta?.updatedAt ?? null;
  const reason = (waitingFor: string, wokenBy: string): Reason => Reason.create({ waitingFor, wokenBy, since });
  const stateReason = (state: StatePath<typeof certificateMachine>, why = ""): Reason => {
    const { waitingFor, wokenBy } = waitOf(certificateMachine, state);
    return reason(waitingFor + why, wokenBy);
  };
  const reasons: Reason[] = [];
  if (isDemoted(node) && (node.role === NodeRole.MANAGER || manager !== undefined)) {
    const facts = { "the grace period": `${demotionTimes.graceMs / 1_000} s` };
    reasons.push(Reason.create({ ...waitOf(demotionMachine, "leaving", facts), since }));
  }
  const state = issuanceState(node);
  if (isUnsigned(node)) {
    reasons.push(stateReason("signing"));
  } else if (nextIssuer !== null && !isIssuedBy(node.description?.tlsInfo ?? null, nextIssuer)) {
    const { batchMax, pauseMs } = rootRotationLimits;
    const isAway = !isLive(node);
    reasons.push(
      isAway
        ? reason("the node to return or to be removed: the root rotation waits for it", "its registration")
        : state === IssuanceStatus_State.ROTATE
          ? stateReason("rotating", ": the root is being rotated")
          : reason(
              `its turn to renew its certificate: the root is being rotated, ${batchMax} nodes every ${pauseMs / 1_000} s`,
              "the leader's next batch",
            ),
    );
  } else if (state === IssuanceStatus_State.ROTATE) {
    reasons.push(stateReason("rotating"));
  }
  return reasons;
}
