// Writes lines of {"hex": stored bytes, "json": expected text or null}; of a
// long text only its size and SHA-256.
//
//	node generate.js named             one of every kind
//	node generate.js random SEED N     N random values
//	node generate.js broken SEED N     N values with bytes changed
'use strict';

const { createHash } = require('node:crypto');
const v8 = require('node:v8');
const { expect, OtherRelease } = require('./expect.js');
const { named, random, randomValue, native } = require('./values.js');

// stored lists the forms in which a value is stored; none of one that V8
// refuses to write.
function stored(value) {
  const list = [];
  for (const form of [v8.serialize, (v) => native(v8, v)]) {
    try {
      const bytes = form(value);
      if (!list.some((b) => b.equals(bytes))) list.push(bytes);
    } catch { /* not serializable */ }
  }
  return list;
}

// judge is the text of what V8 reads from the bytes, null when it refuses,
// undefined when that is no measure.
function judge(bytes) {
  if (bytes.length > 2 * 1024 * 1024) return null;
  if (bytes.includes('\\\r')) return undefined; // newer releases know a thirteenth view: Float16Array
  let value;
  try {
    value = v8.deserialize(bytes);
  } catch (e) {
    // The decoder does not judge the syntax of patterns.
    return e instanceof SyntaxError ? undefined : null;
  }
  try {
    return expect(value);
  } catch (e) {
    if (e instanceof OtherRelease) return undefined;
    throw e;
  }
}

function emit(bytes) {
  const line = { hex: bytes.toString('hex'), json: judge(bytes) };
  if (line.json === undefined) return;
  if (line.json !== null && line.json.length > 2000) {
    const text = Buffer.from(line.json);
    line.json = undefined;
    line.size = text.length;
    line.sha256 = createHash('sha256').update(text).digest('hex');
  }
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function broken(next, bytes) {
  const copy = Buffer.from(bytes);
  for (let n = 1 + (next() % 3); n > 0; n--) {
    const at = 2 + (next() % Math.max(1, copy.length - 2));
    if (at < copy.length) copy[at] = next() % 3 ? '_0TFIUNZS"c^o{aA$@D;:\',BVr-\\?'.charCodeAt(next() % 29) : next() % 256;
  }
  return next() % 6 ? copy : copy.subarray(0, 2 + (next() % Math.max(1, copy.length - 2)));
}

Error.stackTraceLimit = 0; // stacks name places of one machine
const [mode, seed, count] = process.argv.slice(2);
const next = random(Number(seed || 1));
if (mode === 'named') {
  for (const value of named()) for (const bytes of stored(value)) emit(bytes);
} else {
  for (let made = 0; made < Number(count);) {
    for (const bytes of stored(randomValue(next))) {
      made++;
      emit(mode === 'broken' ? broken(next, bytes) : bytes);
    }
  }
}
