"""A program that knows nothing of us and says what time it is: by the wall, and monotonic."""

import sys
import time

print("ready", flush=True)
while True:
    time.sleep(float(sys.argv[1]))
    print("time", repr(time.time()), repr(time.monotonic()), flush=True)
