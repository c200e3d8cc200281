/** The numeric codes of errors that cross a process. The code is API, the text is not: never match on text. */
export const ErrorCode = {
  // 1xx: the ledger and the store
  notLeader: 100,
  outOfSequence: 101,
  exists: 102,
  nameTaken: 103,
  notFound: 104,
  tooLarge: 105,
  malformed: 106,
  logUnavailable: 107,
  foreignTask: 108,
  sessionChanged: 109,
  staleEpoch: 110,
  portTaken: 111,
  referenceMissing: 112,
  inUse: 113,
  referenced: 114,
  ingressMissing: 115,
  unknownDeadline: 116,
  logFull: 117,
  wrongLevel: 118,
} as const;
export type ErrorCode = (typeof ErrorCode)[keyof typeof ErrorCode];
