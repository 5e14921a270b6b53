"""An engine at a fixed port that does not set SO_REUSEADDR, as some don't, and that keeps websockets open."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self):
        body = json.dumps({"model": sys.argv[2]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.headers.get("upgrade", "").lower() != "websocket":
            return self.answer()
        head = "HTTP/1.1 101 S\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: abc\r\n\r\n"
        self.wfile.write(head.encode())
        time.sleep(600)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.answer()


class Server(ThreadingHTTPServer):
    allow_reuse_address = False
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
