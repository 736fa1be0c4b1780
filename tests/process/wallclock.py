"""A foreign program that prints the time of its wall clock and its monotonic clock."""

import sys
import time

print("ready", flush=True)
while True:
    time.sleep(float(sys.argv[1]))
    print("time", repr(time.time()), repr(time.monotonic()), flush=True)
