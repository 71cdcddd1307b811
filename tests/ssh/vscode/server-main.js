// Stands for VS Code's server: listens on a free port of loopback, says which, answers /version, and echoes what comes over
// a WebSocket whose address has the right token.
const http = require('node:http'), crypto = require('node:crypto');

const token = process.argv.find((argument) => argument.startsWith('--connection-token=')).split('=')[1];
const server = http.createServer((request, response) => {
  response.statusCode = request.url === '/version' ? 200 : 404;
  response.end(process.env.VSCODE_COMMIT + '\n');
});
server.on('upgrade', (request, socket) => {
  if (!request.url.includes(`tkn=${token}`)) return socket.end('HTTP/1.1 403 Forbidden\r\n\r\n');
  const key = request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
  const accept = crypto.createHash('sha1').update(key).digest('base64');
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
  // What follows is VS Code's own protocol; here everything comes back as it was.
  socket.pipe(socket);
});
server.listen(0, '127.0.0.1', () => console.log(`Extension host agent listening on ${server.address().port}`));
