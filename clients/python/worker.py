"""One agent as a process of its own: `worker.py KIT GATEWAY`.

It says `ready`, waits for a line, makes one plain call with the client's own defaults, and prints what became of it as
one JSON line.
"""

import json
import sys
import time

from kits import KITS


def main():
    kit = KITS[sys.argv[1]](sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    started = time.monotonic()
    try:
        text, _ = kit.ask()
        result = {"text": text}
    except kit.errors.APIError as error:
        result = {"error": type(error).__name__}
    print(json.dumps({**result, "took_seconds": time.monotonic() - started}), flush=True)


main()
