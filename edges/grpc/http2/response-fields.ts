/** Collects the fields of a response that gRPC reads. One instance is reused for all connections. */
import type { FieldReceiver } from "./hpack-decoder.ts";
import { fieldBytes, type HeaderField } from "./hpack-table.ts";

export class ResponseFields implements FieldReceiver {
  /** Empty in trailers. */
  status = "";
  /** Null if absent. */
  grpcStatus: string | null = null;
  grpcMessage = "";
  /** As received, in base64; empty if absent. */
  grpcDetails = "";
  /** As HPACK counts. */
  bytes = 0;

  reset(): void {
    this.status = this.grpcMessage = this.grpcDetails = "";
    this.grpcStatus = null;
    this.bytes = 0;
  }

  get isInformational(): boolean {
    return this.status.startsWith("1");
  }

  onField(field: HeaderField): void {
    this.bytes += fieldBytes(field);
    if (field.name === ":status") this.status = field.value;
    else if (field.name === "grpc-status") this.grpcStatus = field.value;
    else if (field.name === "grpc-message") this.grpcMessage = field.value;
    else if (field.name === "grpc-status-details-bin") this.grpcDetails = field.value;
  }
}
