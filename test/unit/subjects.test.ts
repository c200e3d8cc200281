import test from "ava";
import { InvariantError } from "../../lib/assert.ts";
import * as subjects from "../../runtime/subjects.ts";

test("every builder of a subject is undone by its parser", (t) => {
  for (const id of ["m1", "a_b-C9", "x".repeat(25)]) {
    t.is(subjects.parseManagerBeat(subjects.managerBeat(id)), id);
    t.is(subjects.parseLogsHeld(subjects.logsHeld(id)), id);
    t.is(subjects.parseLogsDelivered(subjects.logsDelivered(id)), id);
    t.is(subjects.parseTaskQuestion(subjects.taskQuestion(id)), id);
    t.is(subjects.parseTaskAnswered(subjects.taskAnswered(id)), id);
    t.is(subjects.parseFeedLeased(subjects.feedLeased(id)), id);
    t.is(subjects.parseFeedTaken(subjects.feedTaken(id)), id);
    t.is(subjects.parseRecentRead(subjects.recentRead(id)), id);
    t.deepEqual(subjects.parseNodeFrame(subjects.nodeFrame(id, "m", "l")), { nodeId: id, link: "l" });
    t.deepEqual(subjects.parseNodeFrame(subjects.nodeFrame("n", id, id)), { nodeId: "n", link: id });
    t.deepEqual(subjects.parseSiteFrame(subjects.siteFrame(id, "m", "l")), { site: id, link: "l" });
    t.deepEqual(subjects.parseSiteFrame(subjects.siteFrameForAny("lab", id)), { site: "lab", link: id });
    for (const actor of [null, "", "ledger", "session/n1", "plugin/a.b c", "é>*"])
      t.is(subjects.parseFeedPublished(subjects.feedPublished(`manager-${id}`, actor)), `manager-${id}`);
  }
});

test("a message of the feed about one actor has its id in the subject, as far as subjects allow", (t) => {
  t.is(subjects.feedPublished("manager-m1", "session/n1"), "muster.v1.inspect.manager-m1.session_n1");
  t.is(subjects.feedPublished("node-n1", null), "muster.v1.inspect.node-n1.several");
});

test("a parser answers null for another's subject", (t) => {
  for (const subject of [
    subjects.log,
    subjects.ledgerPropose,
    subjects.leaderAsk,
    subjects.leaderBeat,
    subjects.sessionRegistered,
    `${subjects.managerBeat("m1")}.more`,
    "muster.v1.beat.node.m1",
    "",
  ]) {
    t.is(subjects.parseManagerBeat(subject), null);
    t.is(subjects.parseLogsHeld(subject), null);
    t.is(subjects.parseLogsDelivered(subject), null);
    t.is(subjects.parseTaskQuestion(subject), null);
    t.is(subjects.parseTaskAnswered(subject), null);
    t.is(subjects.parseFeedLeased(subject), null);
    t.is(subjects.parseFeedTaken(subject), null);
    t.is(subjects.parseRecentRead(subject), null);
    t.is(subjects.parseFeedPublished(subject), null);
    t.is(subjects.parseNodeFrame(subject), null);
    t.is(subjects.parseSiteFrame(subject), null);
  }
  t.is(subjects.parseSiteFrame(subjects.nodeFrame("lab", "m1", "l")), null);
  t.is(subjects.parseNodeFrame(subjects.siteFrame("n1", "m1", "l")), null);
  for (const subject of [subjects.frameForSite("lab", "l"), `${subjects.siteFrame("lab", "m1", "l")}.more`])
    t.is(subjects.parseSiteFrame(subject), null);
  for (const subject of [subjects.frameForNode("n1", "l"), `${subjects.nodeFrame("n1", "m1", "l")}.more`])
    t.is(subjects.parseNodeFrame(subject), null);
});

test("B1: an id that would change a subject's meaning is rejected", (t) => {
  for (const id of ["", "a.b", "*", ">", "a b", "é"]) {
    t.throws(() => subjects.nodeFrame(id, "m1", "l"), { instanceOf: InvariantError });
    t.throws(() => subjects.frameForNode(id, "l"), { instanceOf: InvariantError });
    t.throws(() => subjects.siteFrame(id, "m1", "l"), { instanceOf: InvariantError });
    t.throws(() => subjects.siteSubjects(id), { instanceOf: InvariantError });
    t.throws(() => subjects.managerBeat(id), { instanceOf: InvariantError });
  }
});

test("built subjects match the wildcards that receivers subscribe to", (t) => {
  const matches = (subject: string, pattern: string): boolean => {
    const [tokens, wanted] = [subject.split("."), pattern.split(".")];
    if (wanted.at(-1) === ">")
      return tokens.length >= wanted.length && wanted.slice(0, -1).every((token, at) => token === tokens[at]);
    return tokens.length === wanted.length && wanted.every((token, at) => token === "*" || token === tokens[at]);
  };
  t.true(matches(subjects.managerBeat("m1"), subjects.managerBeats));
  t.true(matches(subjects.feedPublished("node-n1", "task/t1"), subjects.feedPublications));
  t.true(matches(subjects.nodeFrame("n1", "m1", "l"), subjects.nodeFramesFor("m1")));
  t.false(matches(subjects.nodeFrame("n1", "m2", "l"), subjects.nodeFramesFor("m1")));
  for (const subject of [subjects.nodeFrame("n1", "m1", "l"), subjects.frameForNode("n1", "l")])
    t.true(matches(subject, "muster.v1.node.n1.>"), "a node's permissions cover its own subjects");
  t.true(matches(subjects.siteFrame("lab", "m1", "l"), subjects.siteFramesFor("lab", "m1")));
  t.true(matches(subjects.siteFrameForAny("lab", "l"), subjects.siteFramesForAny("lab")));
  t.false(matches(subjects.siteFrame("lab", "m2", "l"), subjects.siteFramesFor("lab", "m1")));
  const { receives, sends } = subjects.siteSubjects("lab");
  for (const subject of [subjects.siteFramesFor("lab", "m1"), subjects.siteFramesForAny("lab")])
    t.true(matches(subject, sends), "a leaf node is sent the interest of its managers");
  t.true(matches(subjects.frameForSite("lab", "l"), receives));
  t.false(matches(subjects.frameForSite("attic", "l"), receives));
});

test("every subject has Muster's form, in lower case, and is unique", (t) => {
  const all = [
    subjects.ledgerPropose,
    subjects.leaderAsk,
    subjects.leaderBeat,
    subjects.managerBeat("x"),
    subjects.sessionRegistered,
    subjects.logsAnnounced,
    subjects.logsHeld("x"),
    subjects.logsDelivered("x"),
    subjects.taskQuestion("x"),
    subjects.taskAnswered("x"),
    subjects.feedLeased("x"),
    subjects.feedTaken("x"),
    subjects.recentRead("x"),
    subjects.feedPublished("x", null),
    subjects.nodeFrame("x", "x", "x"),
    subjects.frameForNode("x", "x"),
    subjects.log,
  ];
  for (const subject of all) t.regex(subject, /^muster\.v1\.(svc|cmd|log|beat|out|inspect|node)(\.[a-z:-]+)*$/);
  t.is(new Set(all).size, all.length);
});
