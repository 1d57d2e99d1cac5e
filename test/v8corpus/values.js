// Values of every kind that V8 serializes, and random ones.
'use strict';

// random is a small generator of numbers below 2^32 (mulberry32).
function random(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = a;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
}

const ARRAYS = [Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array,
  Float32Array, Float64Array, BigInt64Array, BigUint64Array];
const ERRORS = [Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError];

const NUMBERS = [0, -0, 1, -1, 0.1, 1.5, -2.25, 1e21, 1e20, 123456789012345680000, 1e-6, 1e-7, 1.234e-7, 5e-324,
  1.7976931348623157e308, 2 ** 31, 2 ** 31 - 1, -(2 ** 31), 2 ** 32, 2 ** 53, 2 ** 53 + 2, NaN, Infinity, -Infinity,
  4294967295, 1073741823, 1073741824, -1073741825, 0.000001, 100, 1e100, 9007199254740993];
const STRINGS = ['', 'a', 'plain', 'é', 'ÿ', 'Ā', '€', '日本語', '😀', 'a😀b', '"\\/', '\b\f\n\r\t\v\0\u001f\u007f',
  '\u2028\u2029', '\ufeff', '\ud800', '\udc00x', 'x\ud83d', '\ud83d\ud83d\ude00', '$', '$date', '__proto__', 'length',
  '0', '01', '-1', '4294967294', '4294967295', '4294967296', '1e3', 'toString'];
const BIGINTS = [0n, 1n, -1n, 255n, 2n ** 63n, -(2n ** 63n), 2n ** 64n - 1n, 2n ** 64n, -(2n ** 200n) + 7n, 10n ** 40n];
const PATTERNS = ['', 'a', '/', '[/]', 'a\\/b', '\n', '[\n]', '\\\n', '\r', '\u2028', '\\\u2029', 'é+', '€', '😀', '[\\]/]/',
  '\\\\/', '(?:x|y)*', '^\\d{3}$'];
const FLAGS = ['', 'g', 'i', 'gimsuy', 'v', 'd', 'dgimsvy', 'y', 'u'];
const DATES = [0, 1, -1, 1767225600000, 8.64e15, -8.64e15, NaN, -62198755200000, -62167219200001, 253402300800000, 1.5, 8.64e15 + 1];

function* named() {
  yield* [undefined, null, true, false];
  yield* NUMBERS;
  yield* STRINGS;
  yield* BIGINTS;
  for (const d of DATES) yield new Date(d);
  for (const p of PATTERNS) {
    for (const f of FLAGS) {
      try { yield new RegExp(p, f); } catch { /* not a pattern in this mode */ }
    }
  }
  yield* [new Boolean(true), new Boolean(false), Object(5), Object(-0), Object(NaN), Object('s'), Object('€'), Object(12n)];
  for (const E of ERRORS) yield* [new E('why'), new E(), new E('€', { cause: new E('deep') })];
  const own = new TypeError('own'); own.name = 'Mine'; own.extra = 1;
  const bare = new Error('no stack'); delete bare.stack; bare.stack = undefined;
  yield* [own, bare];
  const buffer = new Uint8Array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 250, 251, 252, 253, 254, 255, 128, 127]).buffer;
  yield buffer;
  yield new ArrayBuffer(0);
  for (const A of ARRAYS) yield* [new A(buffer), new A(buffer, 8, 1), new A(0), new A(buffer, A.BYTES_PER_ELEMENT)];
  yield* [new DataView(buffer), new DataView(buffer, 3, 4), Buffer.from('hi'), Buffer.alloc(0)];
  if (ArrayBuffer.prototype.resize) {
    const grow = new ArrayBuffer(10, { maxByteLength: 32 });
    yield* [grow, new Uint8Array(grow), new Uint16Array(grow, 2), new Uint8Array(grow, 1, 3), new DataView(grow, 2)];
  }
  yield* [new Map(), new Set(), new Map([[NaN, 1], [-0, -0], ['k', new Map([[null, undefined]])], [{ a: 1 }, [1]]]),
    new Set([1, '1', 1n, NaN, undefined, new Set(['x'])])];
  yield* containers();
}

function* containers() {
  yield* [{}, [], [,], [1, , 3], [undefined], [[[]]], { a: { b: { c: 1 } } }];
  yield { b: 1, 2: 2, a: 3, 1: 4, '-1': 5, '01': 6, 4294967294: 7, 4294967295: 8, 0: 9, '': 10 };
  yield* [{ $: 1 }, { $date: 'x' }, { a: { $a: 1 } }, { a$: 1 }, { '\ud800': 1 }, { $: { $: {} } }, JSON.parse('{"__proto__":1,"x":2}')];
  yield* [Object.assign([1, , 2], { x: 1, [-1]: 2, 1.5: 3 }), Object.assign([1, 2], { x: '\ud800' })];
  const far = [1]; far[5000] = 2; yield far;
  const sparse = []; sparse[40000] = 'x'; sparse.name = 'n'; sparse[7] = 7; yield sparse;
  const huge = []; huge.length = 4294967295; yield huge;
  const just = []; just.length = 1048576; yield just;
  const under = []; under.length = 100000; yield under;
  const cycle = { a: 1 }; cycle.self = cycle; yield cycle;
  const ring = [1]; ring.push([ring]); yield ring;
  const map = new Map(); map.set('me', map); yield map;
  const set = new Set(); set.add([set]); yield set;
  const hidden = [1]; hidden.me = hidden; yield hidden;
  const shared = { n: 1 }; yield [shared, shared, { shared }, new Map([[shared, shared]])];
  const buffer = new ArrayBuffer(16); yield [new Uint8Array(buffer, 2, 3), new Float64Array(buffer), buffer, new DataView(buffer, 1)];
  const date = new Date(5); const re = /x/g; const boxed = Object('s'); yield [date, date, re, re, boxed, boxed];
  const big = Object(10n ** 700n); yield [big, big, big];
  let laugh = ['ha']; for (let i = 0; i < 18; i++) laugh = [laugh, laugh]; yield laugh;
  laugh = ['ha']; for (let i = 0; i < 12; i++) laugh = [laugh, laugh]; yield laugh;
  let deep = 1; for (let i = 0; i < 1500; i++) deep = [deep]; yield deep;
}

// randomValue makes a value of at most a few dozen parts.
function randomValue(next, depth = 0, seen = []) {
  const pick = (list) => list[next() % list.length];
  const few = () => next() % (depth > 3 ? 2 : 5);
  const child = () => randomValue(next, depth + 1, seen);
  const simple = [
    () => pick([undefined, null, true, false]), () => pick(NUMBERS), () => pick(STRINGS.filter((s) => !/[\ud800-\udfff]/.test(s) || s.length > 3)),
    () => next() | 0, () => next(), () => (next() / 2 ** 32) * 10 ** (next() % 40 - 20), () => pick(BIGINTS),
    () => BigInt(next()) ** BigInt(next() % 9) * (next() % 2 ? -1n : 1n), () => new Date((next() - 2 ** 31) * (next() % 2000)),
    () => String.fromCodePoint(...Array.from({ length: next() % 12 }, () => next() % pick([128, 256, 0xd7ff]))),
    () => new Date(pick(DATES)), () => Object(pick(STRINGS.slice(0, 8))), () => Object(pick(NUMBERS)), () => new (pick(ERRORS))(pick(STRINGS.slice(0, 14))),
    () => { const A = pick(ARRAYS); return new A(new ArrayBuffer(64), 8 * (next() % 4), next() % 4); },
    () => Buffer.from(pick(STRINGS)), () => { try { return new RegExp(pick(PATTERNS), pick(FLAGS)); } catch { return /x/; } },
  ];
  const nested = [
    () => { const o = remember({}); for (let n = few(); n > 0; n--) o[pick([pick(STRINGS.slice(0, 13)), String(next() % 9), `k${next() % 9}`])] = child(); return o; },
    () => { const a = remember([]); for (let n = few(); n > 0; n--) if (next() % 8 === 0) a.length++; else a.push(child()); if (next() % 16 === 0) a.extra = child(); return a; },
    () => { const m = remember(new Map()); for (let n = few(); n > 0; n--) m.set(child(), child()); return m; },
    () => { const s = remember(new Set()); for (let n = few(); n > 0; n--) s.add(child()); return s; },
    () => (seen.length && next() % 4 === 0 ? pick(seen) : child()),
  ];
  function remember(o) { seen.push(o); return o; }
  return depth < 6 && next() % 5 < (depth === 0 ? 5 : 2) ? pick(nested)() : pick(simple)();
}

// native writes a value as the runtime does: it stores views in V8's
// own form, where v8.serialize writes host objects.
function native(v8, value) {
  const s = new v8.Serializer();
  s.writeHeader();
  s.writeValue(value);
  return s.releaseBuffer();
}

module.exports = { named, random, randomValue, native };
