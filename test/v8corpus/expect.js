// What a value revived from V8's serialization looks like as JSON text, by
// the rules of the change export, computed on the JavaScript value alone: the
// judge of the decoder, which knows nothing of the bytes.
'use strict';

class Undecodable extends Error {}

// OtherRelease: later releases of V8 refuse what this one revived.
class OtherRelease extends Error {}

const MAX_UNITS = 64 * 1024 * 1024;
const MAX_DEPTH = 3000;

// expect returns the JSON text, or null when the stored bytes are exported.
function expect(value) {
  const open = new Set();
  let units = 0;
  const charge = (n) => { units += n; if (units > MAX_UNITS) throw new Undecodable('too large'); };
  const text = (s) => {
    if (/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(s)) throw new Undecodable('surrogate');
    charge(s.length);
    return JSON.stringify(s);
  };
  const number = (n) => {
    if (Number.isNaN(n) || !Number.isFinite(n)) return `{"$number":"${n}"}`;
    if (Object.is(n, -0)) return '{"$number":"-0"}';
    return String(n);
  };
  const bytes = (name, buffer, offset, length) => {
    charge(2 * length);
    return `{"$bytes":{"base64":"${Buffer.from(buffer, offset, length).toString('base64')}","type":"${name}"}}`;
  };
  const walk = (v, depth) => {
    charge(64);
    if (depth > MAX_DEPTH) throw new Undecodable('deep');
    switch (typeof v) {
      case 'undefined': return '{"$undefined":true}';
      case 'boolean': return String(v);
      case 'number': return number(v);
      case 'string': return text(v);
      case 'bigint': return `{"$bigint":${text(v.toString())}}`;
    }
    if (v === null) return 'null';
    if (v instanceof Boolean || v instanceof Number || v instanceof String || v instanceof BigInt) {
      units -= 64;
      return walk(v.valueOf(), depth);
    }
    if (v instanceof Date) return Number.isNaN(v.getTime()) ? '{"$date":null}' : `{"$date":"${v.toISOString()}"}`;
    if (v instanceof RegExp && v.unicode && v.unicodeSets) throw new OtherRelease();
    if (v instanceof RegExp) return `{"$regexp":{"source":${text(v.source)},"flags":"${v.flags}"}}`;
    if (v instanceof ArrayBuffer) return bytes('ArrayBuffer', v, 0, v.byteLength);
    if (ArrayBuffer.isView(v)) return bytes(v.constructor.name, v.buffer, v.byteOffset, v.byteLength);
    if (v instanceof Error) return `{"$error":{"name":${text(v.name)},"message":${text(v.message)}}}`;
    if (open.has(v)) throw new Undecodable('cycle');
    open.add(v);
    const out = container(v, depth + 1);
    open.delete(v);
    return out;
  };
  const container = (v, depth) => {
    if (v instanceof Map) return `{"$map":[${[...v].map(([k, e]) => `[${walk(k, depth)},${walk(e, depth)}]`).join(',')}]}`;
    if (v instanceof Set) return `{"$set":[${[...v].map((e) => walk(e, depth)).join(',')}]}`;
    if (Array.isArray(v)) {
      if (v.length * 64 > MAX_UNITS) throw new Undecodable('too large');
      return `[${Array.from(v, (e) => walk(e, depth)).join(',')}]`;
    }
    const keys = Object.keys(v);
    const plain = `{${keys.map((k) => `${text(k)}:${walk(v[k], depth)}`).join(',')}}`;
    return keys.some((k) => k.startsWith('$')) ? `{"$object":${plain}}` : plain;
  };
  try {
    return walk(value, 0);
  } catch (e) {
    if (e instanceof Undecodable) return null;
    throw e;
  }
}

module.exports = { expect, OtherRelease };
