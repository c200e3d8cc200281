// Users' certificates: who gets one, and its content. Labels are those of actors/json/user-certificates.ts and logins.ts.
import { X509Certificate } from "node:crypto";
import test from "ava";
import { startJsonApi } from "../../actors/json/api.ts";
import { createLogins } from "../../actors/json/logins.ts";
import { createUserCertificates } from "../../actors/json/user-certificates.ts";
import { createUsers } from "../../actors/json/users.ts";
import { bootstrapCluster } from "../../actors/manager/bootstrap.ts";
import { watchStandings } from "../../actors/manager/standings.ts";
import { refusalsPerMinute } from "../../machines/json/login-rate.ts";
import {
  AddUserRequest,
  Cluster,
  DisableUserRequest,
  IssueUserCertificateRequest,
  LoginRequest,
  RemoveUserRequest,
  RootCA,
  SetUserPasswordRequest,
  UserRole,
  type UserCertificateResponse,
} from "../../proto/gen/messages.ts";
import { timeMs } from "../../proto/time.ts";
import * as pki from "../../lib/pki/index.ts";
import { Status, type RpcError } from "../../runtime/ports/rpc.ts";
import { Scrypt } from "../../runtime/system/scrypt.ts";
import { cheapScrypt, password } from "../support/json-api.ts";
import { call, testManager } from "../support/manager.ts";

const dayS = 24 * 3_600;

async function world() {
  const manager = testManager();
  const { env, store } = manager;
  await bootstrapCluster(env, pki, { advertise: "192.0.2.1:2377" });
  const passwords = new Scrypt(cheapScrypt);
  const logins = createLogins(env, passwords);
  const users = createUsers(env, passwords).handlers;
  const { csrPem, keyPem } = await pki.createKeyAndCsr();
  const csr = new TextEncoder().encode(csrPem);
  const add = (role: UserRole) => users.AddUser(AddUserRequest.create({ name: "ada", role, password }), call());
  await add(UserRole.USER_ROLE_OPERATOR);
  return {
    ...manager,
    add,
    csr,
    keyPem,
    env,
    logins,
    passwords,
    store,
    users,
    standings: watchStandings(store),
    certificates: createUserCertificates(env, logins, pki),
  };
}

type World = Awaited<ReturnType<typeof world>>;

const login = async (
  { certificates, csr }: World,
  fields: Partial<LoginRequest> = {},
): Promise<UserCertificateResponse> =>
  certificates.Login(LoginRequest.create({ name: "ada", password, csr, ...fields }), call());

const issueFor = async ({ certificates, csr }: World, name: string): Promise<UserCertificateResponse> =>
  certificates.IssueUserCertificate(IssueUserCertificateRequest.create({ name, csr }), call());

const codeOf = async (promise: Promise<unknown>): Promise<Status | null> =>
  promise.then(
    () => null,
    (error: unknown) => (error as RpcError).code,
  );

const read = ({ certificate }: UserCertificateResponse): X509Certificate => new X509Certificate(certificate);
const markIn = (response: UserCertificateResponse): string =>
  /serialNumber=(.*)/.exec(read(response).subject)?.[1] ?? "";

test("a user with the password gets a client certificate of the cluster's root for 12 hours", async (t) => {
  const all = await world();
  const response = await login(all);
  const root = [...all.store.all("cluster")][0];
  const certificate = read(response);
  t.true(certificate.checkIssued(new X509Certificate(root?.rootCa?.caCert ?? "")));
  t.regex(certificate.subject, new RegExp(`O=${root?.id}\\nOU=muster-user\\nCN=ada\\nserialNumber=`));
  t.deepEqual(certificate.keyUsage, ["1.3.6.1.5.5.7.3.2"]);
  t.false(certificate.ca);
  t.is(certificate.subjectAltName, "DNS:muster-user");
  t.is(response.role, UserRole.USER_ROLE_OPERATOR);
  t.is(timeMs(response.notAfter), all.env.clock.now() + (dayS / 2) * 1_000);
  t.true(Math.abs(certificate.validToDate.getTime() - timeMs(response.notAfter)) < 1_000);
  t.deepEqual(Buffer.from(response.rootCertificates), Buffer.from(root?.rootCa?.caCert ?? []));
  t.is(all.standings.userRole("ada", markIn(response)), "operator");
});

test("a lifetime is from a minute to 30 days", async (t) => {
  const all = await world();
  t.is(timeMs((await login(all, { lifetimeSeconds: 60 })).notAfter), all.env.clock.now() + 60_000);
  await t.notThrowsAsync(login(all, { lifetimeSeconds: 30 * dayS }));
  for (const lifetimeSeconds of [1, 59, 30 * dayS + 1, 2 ** 32 - 1])
    t.is(await codeOf(login(all, { lifetimeSeconds })), Status.INVALID_ARGUMENT, String(lifetimeSeconds));
});

test("JA1: a wrong password, an unknown name, an agent and a disabled user are rejected in the same words", async (t) => {
  const all = await world();
  const messages = new Set<string>();
  const refused = async (fields: Partial<LoginRequest>): Promise<void> => {
    const error = await t.throwsAsync(login(all, fields));
    t.is((error as RpcError).code, Status.UNAUTHENTICATED);
    messages.add(error?.message ?? "");
  };
  await refused({ password: "something else" });
  await refused({ password: "" });
  await refused({ name: "bob" });
  await refused({ name: "" });
  await all.users.DisableUser(DisableUserRequest.create({ name: "ada", disabled: true }), call());
  await refused({});
  t.is(messages.size, 1);
  t.is(await codeOf(issueFor(all, "ada")), Status.FAILED_PRECONDITION);
  t.is(await codeOf(issueFor(all, "bob")), Status.NOT_FOUND);
});

test("UC2: an invalid certificate request is reported only to callers with the password", async (t) => {
  const all = await world();
  const csr = Buffer.from("nonsense");
  t.is(await codeOf(login(all, { csr, password: "something else" })), Status.UNAUTHENTICATED);
  t.is(await codeOf(login(all, { csr })), Status.INVALID_ARGUMENT);
});

test("UC1: a certificate is valid only for the password that it was issued under, and only for that user", async (t) => {
  const all = await world();
  const { standings, users } = all;
  const mark = markIn(await login(all));
  await users.SetUserPassword(SetUserPasswordRequest.create({ name: "ada", password: "another one" }), call());
  t.is(standings.userRole("ada", mark), null);
  const second = markIn(await issueFor(all, "ada"));
  t.is(standings.userRole("ada", second), "operator");
  // A later user with that name is somebody else, even with the same password.
  await users.RemoveUser(RemoveUserRequest.create({ name: "ada" }), call());
  t.is(standings.userRole("ada", second), null);
  await users.AddUser(
    AddUserRequest.create({ name: "ada", role: UserRole.USER_ROLE_ADMIN, password: "another one" }),
    call(),
  );
  t.is(standings.userRole("ada", second), null);
});

test("UC1: a password that is changed while the old one is checked grants nothing", async (t) => {
  const all = await world();
  const { certificates, csr, logins, users } = all;
  const slow = createUserCertificates(
    all.env,
    {
      async check(attempt) {
        const outcome = await logins.check(attempt);
        await users.SetUserPassword(SetUserPasswordRequest.create({ name: "ada", password: "another one" }), call());
        return outcome;
      },
    },
    pki,
  );
  const request = LoginRequest.create({ name: "ada", password, csr });
  t.is(await codeOf(Promise.resolve(slow.Login(request, call()))), Status.UNAUTHENTICATED);
  t.is(await codeOf(Promise.resolve(certificates.Login(request, call()))), Status.UNAUTHENTICATED);
});

test("attempts over gRPC and over the JSON API count together, for each address", async (t) => {
  const all = await world();
  const api = startJsonApi(all.env, all.logins);
  for (let at = 0; at < refusalsPerMinute; at += 1) await login(all, { password: "something else" }).catch(() => {});
  t.is(await codeOf(login(all)), Status.RESOURCE_EXHAUSTED);
  const attempt = { name: { kind: "user", name: "ada" }, password, certifiedNode: null } as const;
  t.is((await api.checkLogin({ ...attempt, address: call().peer.address })).kind, "busy");
  t.is((await api.checkLogin({ ...attempt, address: "192.0.2.77" })).kind, "accepted");
  api.stop();
});

test("LR3: attempts from addresses of one IPv6 /64 network count together, those from another separately", async (t) => {
  const { logins } = await world();
  const attempt = { name: { kind: "user", name: "ada" }, certifiedNode: null } as const;
  for (let at = 0; at < refusalsPerMinute; at += 1)
    await logins.check({ ...attempt, password: "something else", address: `2001:db8::${at}` });
  t.is((await logins.check({ ...attempt, password, address: "2001:db8::ffff" })).kind, "busy");
  t.is((await logins.check({ ...attempt, password, address: "2001:db8:0:1::1" })).kind, "accepted");
});

test("if only an external CA has the root's key, nobody gets a certificate", async (t) => {
  const all = await world();
  const [cluster] = all.store.all("cluster");
  if (cluster?.rootCa == null) return t.fail();
  all.seed("cluster", Cluster.patch(cluster, { rootCa: RootCA.patch(cluster.rootCa, { caKey: new Uint8Array() }) }));
  t.is(await codeOf(login(all)), Status.FAILED_PRECONDITION);
  t.is(await codeOf(issueFor(all, "ada")), Status.FAILED_PRECONDITION);
});
