// node: asynchronous files, workers, children, http on loopback, watchers,
// WebAssembly, crypto and compression.
'use strict'
const assert = require('node:assert')
const { execFile, spawn, fork } = require('node:child_process')
const crypto = require('node:crypto')
const fs = require('node:fs')
const http = require('node:http')
const net = require('node:net')
const os = require('node:os')
const path = require('node:path')
const { pipeline } = require('node:stream/promises')
const { promisify } = require('node:util')
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads')
const zlib = require('node:zlib')

if (!isMainThread) {
  Atomics.add(new Int32Array(workerData), 0, 1)
  parentPort.postMessage('done')
} else if (process.argv[2] === 'child') {
  process.on('message', (m) => { process.send(m * 2); process.disconnect() })
} else {
  main().then(() => console.log('ok'), (e) => { console.error(e); process.exit(1) })
}

async function files () {
  const dir = await fs.promises.mkdtemp(path.join(os.tmpdir(), 'node-'))
  await Promise.all(Array.from({ length: 200 }, (_, i) => fs.promises.writeFile(path.join(dir, 'f' + i), 'x'.repeat(i))))
  const sizes = await Promise.all((await fs.promises.readdir(dir)).map(async (n) => (await fs.promises.stat(path.join(dir, n))).size))
  assert.strictEqual(sizes.reduce((a, b) => a + b), 199 * 200 / 2)
  const big = path.join(dir, 'big')
  await fs.promises.writeFile(big, crypto.randomBytes(1 << 20))
  await pipeline(fs.createReadStream(big), zlib.createGzip(), fs.createWriteStream(big + '.gz'))
  await pipeline(fs.createReadStream(big + '.gz'), zlib.createGunzip(), fs.createWriteStream(big + '.2'))
  assert(fs.readFileSync(big).equals(fs.readFileSync(big + '.2')))
  const h = await fs.promises.open(big, 'r+')
  await h.truncate(10)
  assert.strictEqual((await h.stat()).size, 10)
  await h.close()
  await fs.promises.cp(dir, dir + '-copy', { recursive: true })
  await fs.promises.rm(dir, { recursive: true })
}

async function watch () {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'watch-'))
  const seen = new Promise((resolve) => {
    const w = fs.watch(dir, (event, name) => { if (name === 'new') { w.close(); resolve(event) } })
  })
  fs.writeFileSync(path.join(dir, 'new'), 'x')
  assert(['rename', 'change'].includes(await seen))
}

async function workers () {
  const shared = new SharedArrayBuffer(4)
  await Promise.all(Array.from({ length: 4 }, () => new Promise((resolve, reject) => {
    const w = new Worker(__filename, { workerData: shared })
    w.on('message', resolve)
    w.on('error', reject)
  })))
  assert.strictEqual(new Int32Array(shared)[0], 4)
}

async function children () {
  const { stdout } = await promisify(execFile)('sh', ['-c', 'echo $0 $FOO', 'arg'], { env: { FOO: 'bar', PATH: process.env.PATH } })
  assert.strictEqual(stdout, 'arg bar\n')
  const c = fork(__filename, ['child'])
  const answer = new Promise((resolve) => c.on('message', resolve))
  c.send(21)
  assert.strictEqual(await answer, 42)
  const cat = spawn('cat')
  const sum = crypto.createHash('sha256')
  cat.stdout.on('data', (d) => sum.update(d))
  const data = crypto.randomBytes(1 << 20)
  cat.stdin.end(data)
  await new Promise((resolve) => cat.on('close', resolve))
  assert.strictEqual(sum.digest('hex'), crypto.createHash('sha256').update(data).digest('hex'))
  const sleeper = spawn('sleep', ['100'])
  const end = new Promise((resolve) => sleeper.on('exit', (code, signal) => resolve(signal)))
  sleeper.kill()
  assert.strictEqual(await end, 'SIGTERM')
}

async function network () {
  const server = http.createServer((req, res) => { req.pipe(res) }).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.on('listening', resolve))
  const url = `http://localhost:${server.address().port}/`
  const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => fetch(url.replace('localhost', '127.0.0.1'), { method: 'POST', body: 'b' + i }).then((r) => r.text())))
  assert.deepStrictEqual(answers, answers.map((_, i) => 'b' + i))
  server.close()
  server.closeAllConnections()
  const file = path.join(os.tmpdir(), 'socket')
  const local = net.createServer((c) => c.end('unix')).listen(file)
  await new Promise((resolve) => local.on('listening', resolve))
  let text = ''
  for await (const d of net.connect(file)) text += d
  assert.strictEqual(text, 'unix')
  local.close()
  await require('node:dns').promises.lookup('localhost')
}

async function rest () {
  // (module (func (export "add") (param i32 i32) (result i32) local.get 0 local.get 1 i32.add) (memory 1))
  const wasm = Buffer.from('0061736d0100000001070160027f7f017f030201000503010001070701036164640000' + '0a09010700200020016a0b', 'hex')
  const { instance } = await WebAssembly.instantiate(wasm)
  assert.strictEqual(instance.exports.add(40, 2), 42)
  assert.strictEqual((await promisify(crypto.scrypt)('a', 'b', 32)).length, 32)
  assert.strictEqual(crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.type, 'public')
  assert.strictEqual(new Intl.DateTimeFormat('en', { timeZone: 'Asia/Tokyo', hour: 'numeric', hour12: false }).format(new Date(0)), '09')
  assert(os.cpus().length >= 1 && os.totalmem() > 0 && os.userInfo().username)
  await new Promise((resolve) => setTimeout(resolve, 10))
}

async function main () {
  for (const part of [files, watch, workers, children, network, rest]) {
    await part().catch((e) => { e.message = part.name + ': ' + e.message; throw e })
  }
}
