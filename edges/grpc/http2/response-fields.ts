/** Collects the fields of a response that gRPC reads. One for all connections, used again and again. */
import type { FieldReceiver } from "./hpack-decoder.ts";
import { fieldBytes, type HeaderField } from "./hpack-table.ts";

export class ResponseFields implements FieldReceiver {
  /** Empty in trailers. */
  status = "";
  /** Null where there is none. */
  grpcStatus: string | null = null;
  grpcMessage = "";
  /** As it came, in base64; empty where there is none. */
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
