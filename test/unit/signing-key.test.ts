// Keys of NATS that sign with OpenSSL are those of the library.
import test from "ava";
import { decode, encodeUser, createUser, fromPublic } from "@nats-io/jwt";
import { createSigningAccount } from "../../runtime/nats/signing-key.ts";

test("the library accepts what such a key has signed, and nothing else", async (t) => {
  for (let round = 0; round < 5; round += 1) {
    const [account, other] = [createSigningAccount(), createSigningAccount()];
    const data = new TextEncoder().encode(`round ${round}`);
    const signature = account.sign(data);
    const known = fromPublic(account.getPublicKey());
    t.true(known.verify(data, signature));
    t.false(known.verify(data, other.sign(data)));
    t.deepEqual(account.sign(data), signature, "Ed25519 signatures of one text are the same");
    t.true(account.verify(data, signature));
  }
  const account = createSigningAccount();
  const token = await encodeUser("n1", createUser(), account, {}, { aud: "NODES" });
  t.like(decode(token), { iss: account.getPublicKey(), name: "n1", aud: "NODES" });
});
