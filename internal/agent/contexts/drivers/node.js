// The driver of JavaScript contexts. It is read from a descriptor, so that no
// program can replace it. Cells come as JSON lines on descriptor 3, and what
// became of them goes as JSON lines to 4.
//
// Cells are evaluated by the inspector, as in a browser's console: declarations
// stay and may be made again, and await works everywhere. A thread beside reads
// the descriptor, since an endless loop can only be ended from outside.
(() => {
  const fs = require('fs'), vm = require('vm'), util = require('util'), inspector = require('inspector');
  const { Worker } = require('worker_threads');
  const load = (name) => import(name); // here, where the working folder counts
  const MOST = 2 << 20; // of a result's forms together, in bytes as they are told
  let session = null, open = false; // whether an evaluation has not been answered
  // Such a one that is given up must not stay behind: the inspector of node 22
  // ends the process when it meets what is left of it in a garbage collection.
  const connect = () => {
    if (session) session.disconnect();
    session = new inspector.Session();
    session.connect();
    open = false;
  };
  connect();
  let acorn = null;
  try { acorn = require('internal/deps/acorn/acorn/dist/acorn'); } catch {}
  let n = 0, ended = 0, finish = null;

  const tell = (message) => {
    let line = Buffer.from(JSON.stringify(message) + '\n');
    while (line.length) line = line.subarray(fs.writeSync(4, line));
  };
  const wellFormed = (s) => s.toWellFormed ? s.toWellFormed() : Buffer.from(s).toString();

  const send = (forms, main) => {
    const out = {};
    let size = 0, dropped = 0;
    for (let [form, data] of Object.entries(forms)) {
      if (data === undefined || data === null) continue;
      if (Buffer.isBuffer(data) || data instanceof Uint8Array) data = Buffer.from(data).toString('base64');
      if (typeof data !== 'string' || form === 'application/json') data = JSON.stringify(data);
      if (typeof data !== 'string') continue;
      data = wellFormed(data);
      const bytes = Buffer.byteLength(JSON.stringify(data));
      if (size + bytes > MOST || Object.keys(out).length === 16) { dropped += bytes; continue; }
      size += bytes;
      out[form] = data;
    }
    if (Object.keys(out).length || dropped) tell({ op: 'result', n, main, forms: out, dropped });
  };

  // What a value offers: a function under this symbol is Deno's convention.
  const DISPLAY = Symbol.for('Jupyter.display');
  const formsOf = (value) => {
    let forms = {};
    if (value !== null && typeof value === 'object' && typeof value[DISPLAY] === 'function') {
      forms = { ...value[DISPLAY]() };
    }
    if (!('text/plain' in forms)) forms['text/plain'] = util.inspect(value);
    return forms;
  };
  const put = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
  put('display', (value, forms) => send(forms ? { 'text/plain': util.inspect(value), ...forms } : formsOf(value), false));
  put('require', require);
  put('__sunaba_import', (name) => load(name));

  const failed = (e) => {
    let name = 'Error', value = '', traceback = '';
    try {
      if (util.types.isNativeError(e) || e instanceof Error) {
        name = String(e.name); value = String(e.message);
        // What is below the cell's own frames is this driver.
        traceback = String(e.stack).split(/\n    at Session\.post \(node:inspector/)[0];
      } else {
        name = 'Uncaught'; value = util.inspect(e); traceback = 'Uncaught ' + value;
      }
    } catch {}
    tell({ op: 'error', n, name: wellFormed(name.slice(0, 200)), value: wellFormed(value.slice(0, 1 << 16)), traceback: wellFormed(traceback.slice(0, 1 << 18)) });
  };

  // Import statements mean what they mean in a module, import() works, and an
  // object literal is one. Needs a parser; what it cannot read goes as it is.
  const prepared = (code) => {
    if (/^\s*\{/.test(code) && !/;\s*$/.test(code)) {
      try { new vm.Script('(' + code + '\n)'); code = '(' + code + '\n)'; } catch {}
    }
    if (!acorn || !/\bimport\b/.test(code)) return code;
    const edits = [];
    try {
      const tree = acorn.parse(code, { ecmaVersion: 'latest', sourceType: 'module', allowAwaitOutsideFunction: true });
      const walk = (node) => {
        if (!node || typeof node !== 'object') return;
        if (Array.isArray(node)) return node.forEach(walk);
        if (node.type === 'ImportExpression') edits.push([node.start, node.start + 6, '__sunaba_import']);
        if (node.type === 'ImportDeclaration') {
          const from = 'await __sunaba_import(' + node.source.raw + ');', names = [];
          let text = '';
          for (const s of node.specifiers) {
            if (s.type === 'ImportNamespaceSpecifier') text += `const ${s.local.name} = ${from} `;
            else names.push(`${s.type === 'ImportDefaultSpecifier' ? 'default' : s.imported.raw || s.imported.name}: ${s.local.name}`);
          }
          if (names.length) text += `const { ${names.join(', ')} } = ${from}`;
          edits.push([node.start, node.end, text || from]);
          return;
        }
        for (const k in node) if (k !== 'start' && k !== 'end' && k !== 'type') walk(node[k]);
      };
      walk(tree);
    } catch { return code; }
    for (const [a, b, text] of edits.sort((x, y) => y[0] - x[0])) code = code.slice(0, a) + text + code.slice(b);
    return code;
  };

  // Random numbers that are no other copy's. V8's own generator cannot be seeded,
  // so Math.random is one that can: xoshiro128** (Blackman, Vigna), 53 bits of it.
  let [a, b, c, d] = [1, 2, 3, 4];
  const seed = (bytes) => {
    [a, b, c, d] = [0, 4, 8, 12].map((at) => bytes.readUInt32LE(at));
    d |= 1; // not all may be 0
  };
  const next = () => {
    const x = Math.imul(b, 5), out = Math.imul((x << 7) | (x >>> 25), 9) >>> 0, t = b << 9;
    c ^= a; d ^= b; b ^= c; a ^= d; c ^= t;
    d = (d << 11) | (d >>> 21);
    return out;
  };
  const { random } = { random() { return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992; } };
  Object.defineProperty(Math, 'random', { value: random, writable: true, configurable: true });
  const fresh = (n) => { // from the kernel
    const bytes = Buffer.alloc(n), f = fs.openSync('/dev/urandom');
    try { fs.readSync(f, bytes); } finally { fs.closeSync(f); }
    return bytes;
  };
  seed(fresh(16));
  // Nor can OpenSSL's generator, from which node's bytes, numbers and UUIDs come:
  // in a copy, what it gives is mixed with the kernel's.
  let copied = false, random_ = null;
  try {
    const binding = require('internal/test/binding').internalBinding('crypto');
    binding.RandomBytesJob = class extends binding.RandomBytesJob {
      constructor(mode, to, offset, size) { super(mode, to, offset, size); this.mix = { to, offset, size }; }
      run() {
        const { to, offset, size } = this.mix, done = this.ondone;
        const mix = () => {
          const out = new Uint8Array(to.buffer || to, (to.byteOffset || 0) + offset, size), more = fresh(size);
          for (let i = 0; i < size; i++) out[i] ^= more[i];
        };
        if (!copied) return super.run();
        if (done) this.ondone = (...a) => { mix(); return done.apply(this, a); };
        const got = super.run();
        if (!done) mix();
        return got;
      }
    };
    random_ = require('internal/crypto/random');
  } catch {}
  const renew = (bytes) => {
    seed(bytes);
    copied = true;
    if (!random_) return;
    for (let i = 0; i < 128; i++) random_.randomUUID(); // as many as node keeps ready
    for (let i = 0; i < 1024; i++) random_.randomInt(2);
  };

  const post = (method, params) => new Promise((resolve) => session.post(method, params, (error, value) => resolve({ error, value })));
  let taken; // the value under way from the inspector to us
  put('__sunaba_take', (v) => { taken = v; });
  const take = async (remote) => {
    if (remote.objectId === undefined) {
      if (remote.unserializableValue !== undefined) {
        const s = remote.unserializableValue;
        return [s.endsWith('n') ? BigInt(s.slice(0, -1)) : Number(s)];
      }
      return [remote.subtype === 'null' ? null : remote.value];
    }
    await post('Runtime.callFunctionOn', {
      functionDeclaration: 'function() { "use strict"; __sunaba_take(this) }', objectId: remote.objectId, silent: true });
    const value = taken;
    taken = undefined;
    return [value]; // which may be a promise
  };

  const evaluate = async (code) => {
    const { error, value } = await post('Runtime.evaluate', {
      expression: prepared(code) + '\n//# sourceURL=cell-' + n, replMode: true, silent: true, objectGroup: 'cell' });
    if (error) return () => 'interrupted';
    const [got] = await take(value.result);
    await post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
    if (value.exceptionDetails) return () => { failed(got); return 'error'; };
    return () => { if (got !== undefined) { send(formsOf(got), true); } return 'ok'; };
  };
  const run = async (message) => {
    n = message.n;
    let status;
    const stop = new Promise((resolve) => { finish = resolve; });
    try {
      open = true;
      const answered = (f) => { if (message.n === n) open = false; return f; };
      status = (await Promise.race([evaluate(message.code).then(answered), stop]))();
    } catch (e) {
      failed(e);
      status = 'error';
    }
    end(status);
  };
  const end = (status) => {
    finish = null;
    if (ended === n) return;
    ended = n;
    if (open) connect();
    if (status === 'interrupted') tell({ op: 'error', n, name: 'Interrupted', value: 'the cell was interrupted', traceback: '' });
    tell({ op: 'end', n, status });
  };

  // What nobody catches is the cell's error while one runs, else a text.
  const uncaught = (e) => {
    if (finish) finish(() => { failed(e); return 'error'; });
    else process.stderr.write('Uncaught ' + util.inspect(e) + '\n');
  };
  process.on('uncaughtException', uncaught);
  process.on('unhandledRejection', uncaught);
  process.on('SIGINT', () => {});

  const beside = `
    const inspector = require('inspector'), { parentPort, workerData } = require('worker_threads');
    const seen = new Int32Array(workerData);
    let rest = [];
    let tried = -1;
    const interrupt = (message) => {
      const at = Atomics.load(seen, 0);
      parentPort.postMessage(message);
      if (tried === at) return; // is under way: a second one would meet the driver
      // A main thread that is in its event loop has taken the message by now.
      if (Atomics.wait(seen, 0, at, 200) !== 'timed-out') return;
      tried = at;
      // Not connected for longer: a process that exits waits for who is.
      const session = new inspector.Session();
      session.connectToMainThread();
      session.post('Runtime.terminateExecution', () => {});
      session.disconnect();
    };
    const pipe = new (require('net').Socket)({ fd: 3, readable: true, writable: false });
    pipe.on('end', () => process.kill(process.pid, 'SIGKILL')); // nobody is there any more
    pipe.on('data', (data) => {
      for (let at; (at = data.indexOf(10)) >= 0; data = data.subarray(at + 1)) {
        const message = JSON.parse(Buffer.concat([...rest, data.subarray(0, at)]).toString());
        rest = [];
        if (message.op === 'interrupt') interrupt(message);
        else parentPort.postMessage(message);
      }
      if (data.length) rest.push(data);
    });`;
  const shared = new SharedArrayBuffer(4), seen = new Int32Array(shared);
  const worker = new Worker(beside, { eval: true, workerData: shared, stdin: false });
  worker.on('message', (message) => {
    if (message.op === 'ping') tell({ op: 'pong', n: message.n });
    else if (message.op === 'run') run(message);
    else if (message.op === 'renew') renew(Buffer.from(message.seed, 'hex'));
    else {
      Atomics.add(seen, 0, 1);
      Atomics.notify(seen, 0);
      if (message.n !== n || ended === n) return;
      if (finish) finish(() => 'interrupted');
      // What would have told of the end may have been ended itself.
      setTimeout(() => { if (message.n === n) end('interrupted'); }, 100);
    }
  });
  tell({ op: 'ready', kernel: 'node ' + process.version.slice(1) });
})();
