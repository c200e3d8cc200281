/** The gRPC server of a manager process: its services, and its TLS port with the manager's certificate. */
import { hostname } from "node:os";
import {
  startManagerCertificate,
  type ManagerCertificate,
  type ManagerIdentity,
} from "../actors/certificates/manager-certificate.ts";
import { createUserCertificates } from "../actors/json/user-certificates.ts";
import type { Logins } from "../actors/json/logins.ts";
import { createUsers } from "../actors/json/users.ts";
import type { ManagerLock } from "../actors/keys/manager-lock.ts";
import type { Manager } from "../actors/manager/manager.ts";
import { raftMembership } from "../actors/manager/raft-membership.ts";
import type { Admission } from "../edges/grpc/admission/admission.ts";
import { createGrpcServer, type Credentials, type GrpcServer } from "../edges/grpc/server.ts";
import {
  BackupService,
  CAService,
  ControlService,
  DataKeysService,
  DispatcherService,
  HealthService,
  InspectionService,
  LockService,
  NodeCAService,
  OperatorService,
  NetworksService,
  PolicyService,
  TaskAccessService,
  TaskCallsService,
  RaftMembershipService,
  ResourceAllocatorService,
  UserCertificatesService,
  UsersService,
  WatchService,
} from "../proto/gen/messages.ts";
import { LogBrokerLines, LogsLines } from "../proto/log-lines.ts";
import type { Passwords } from "../runtime/ports/passwords.ts";
import * as pki from "../lib/pki/index.ts";
import type { ProcessTelemetry } from "../runtime/telemetry/telemetry.ts";
import { version } from "../lib/version.ts";
import type { HostPort } from "./addresses.ts";

/** A gRPC server with all services of a manager. */
export function createManagerServer(
  manager: Manager,
  lock: ManagerLock,
  { logins, passwords }: { readonly logins: Logins; readonly passwords: Passwords },
  telemetry: ProcessTelemetry,
  admission: Admission,
): GrpcServer {
  const server = createGrpcServer({ telemetry, admission });
  const { services } = manager;
  server.add(CAService, services.ca);
  server.add(NodeCAService, services.nodeCa);
  server.add(DataKeysService, services.dataKeys);
  server.add(LockService, lock.handlers);
  server.add(DispatcherService, services.dispatcher);
  server.add(LogBrokerLines, services.logBroker);
  server.add(LogsLines, services.logs);
  server.add(TaskAccessService, services.taskAccess);
  server.add(TaskCallsService, services.taskCalls);
  server.add(InspectionService, services.inspection);
  server.add(RaftMembershipService, raftMembership);
  server.add(HealthService, services.health);
  server.add(ControlService, services.control);
  server.add(WatchService, services.watch);
  server.add(OperatorService, services.operator);
  server.add(BackupService, services.backup);
  server.add(PolicyService, services.policy);
  server.add(NetworksService, services.networks);
  server.add(UsersService, createUsers(manager.environment, passwords).handlers);
  server.add(UserCertificatesService, createUserCertificates(manager.environment, logins, pki));
  server.add(ResourceAllocatorService, services.resourceAllocator);
  return server;
}

/** This manager's certificate, as long as its process lives. */
export interface KeptCertificate {
  /**
   * Calls the listener with the certificate and with each later one, which the manager's node reports once the listener's promise is
   * settled. Rejects as the first call does; the rejections of later calls are logged.
   */
  follow(listener: (certificate: ManagerCertificate) => Promise<void>): Promise<void>;
}

/** Opens the TLS port with this manager's certificate, and keeps the certificate valid for the life of the process. */
export async function keepCertificate(
  { clockWatch, environment: env, standings }: Manager,
  identity: {
    readonly load: () => ManagerIdentity | null;
    readonly save: (identity: ManagerIdentity) => void;
    readonly trust: (rootPem: string) => void;
  },
  advertise: string,
  server: GrpcServer,
  listen: HostPort,
  onStop: (stop: () => void) => void,
): Promise<KeptCertificate> {
  const facts = {
    hostname: hostname(),
    advertise,
    version,
    architecture: process.arch === "x64" ? "x86_64" : process.arch === "arm64" ? "aarch64" : process.arch,
    os: process.platform,
  };
  let current: ManagerCertificate | null = null;
  const followers: ((certificate: ManagerCertificate) => Promise<void>)[] = [];
  const first = await new Promise<ManagerCertificate>((resolve) => {
    const keeper = startManagerCertificate(env, pki, {
      facts,
      ...identity,
      onClockJump: (listener) => clockWatch.onJump(listener),
      onCertificate: async (certificate) => {
        identity.trust(certificate.rootPem);
        if (current === null) resolve(certificate);
        else server.setCredentials(credentialsOf(certificate));
        current = certificate;
        const failed = (error: unknown): void =>
          env.telemetry.log.error({ error: String(error) }, "cannot use this manager's new certificate everywhere");
        await Promise.all(followers.map((follow) => follow(certificate).catch(failed)));
      },
    });
    onStop(() => keeper.stop());
  });
  await server.listenTls({
    ...listen,
    credentials: credentialsOf(current ?? first),
    clock: env.clock,
    ...standings,
  });
  return {
    follow: (listener) => {
      followers.push(listener);
      return listener(current ?? first);
    },
  };
}

function credentialsOf({ acceptedPem, certificatePem, keyPem }: ManagerCertificate): Credentials {
  return { certificatePem, keyPem, rootPem: acceptedPem };
}
