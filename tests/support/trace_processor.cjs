// node trace_processor.cjs FOLDER REQUESTS REPLIES
// Runs Perfetto's trace processor, built for a worker of a browser, on requests of its own protocol.
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const [folder, requests, replies] = process.argv.slice(2);
const { exit } = process;
const file = (url) => fs.readFileSync(path.join(folder, path.basename(String(url))));
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function () {};
globalThis.location = { href: 'http://localhost/engine_bundle.js' };
globalThis.fetch = async (url) =>
  new Response(file(url), { headers: { 'content-type': 'application/wasm' } });
globalThis.XMLHttpRequest = class {
  open(_method, url) { this.url = url; }
  send() {
    const read = file(this.url);
    this.response = read.buffer.slice(read.byteOffset, read.byteOffset + read.length);
    this.status = 200;
  }
};
console.log = console.warn = () => {};
Object.defineProperty(globalThis, 'process', { value: undefined });
vm.runInThisContext(file('engine_bundle.js').toString());
const said = [];
const port = { postMessage: (bytes) => said.push(Buffer.from(bytes)) };
globalThis.onmessage({ data: port });

function ready() { // it says nothing when it is; what it answers before is an error
  try {
    port.onmessage({ data: new Uint8Array(fs.readFileSync(requests)) });
  } catch (error) {
    said.length = 0;
  }
  if (said.length === 0) return setTimeout(ready, 50);
  fs.writeFileSync(replies, Buffer.concat(said));
  return exit(0);
}
setTimeout(ready, 1500);
