// Says where it runs: sunaba run examples/hello.js
const os = require("node:os");

console.log(`hello from Node ${process.version}`);
console.log(`kernel: ${os.release()}  user: ${process.getuid()}  cpus: ${os.cpus().length}`);
