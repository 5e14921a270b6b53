"""Lets no other process open a file, as if its disk hung, until the input ends. Linux ends that after 45 s."""

import fcntl
import signal
import sys

signal.signal(signal.SIGIO, signal.SIG_IGN)  # sent when another process opens the file
file = open(sys.argv[1], "r+")
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("hangs", flush=True)
sys.stdin.read()
