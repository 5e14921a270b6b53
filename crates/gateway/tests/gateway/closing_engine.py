"""An engine that closes its connections without announcing it: after each answer or, with `resets`, also in the middle.

With `dies`, the first request ends it.
"""

import itertools
import os
import signal
import socket
import struct
import sys
import threading

ANSWER = b'HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{"model":"m"}'
RESET = struct.pack("ii", 1, 0)

how = sys.argv[2]
asked = itertools.count()


def serve(connection):
    with connection, connection.makefile("rb") as reader:
        first, length = reader.readline(), 0
        while (line := reader.readline().strip()):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        reader.read(length)
        answer = ANSWER
        if b"/health" not in first:
            if how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "resets":
                # Nothing, a half, or all of an answer.
                answer = (b"", ANSWER[:-5], ANSWER)[next(asked) % 3]
        connection.sendall(answer)
        if answer != ANSWER:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
