"""The script of a process that ``--ranks`` starts: it trains with the one that started it, and ends with it."""

from __future__ import annotations

import json
import signal
import sys


def main() -> None:
    """Entry point of the script."""
    for number in (signal.SIGINT, signal.SIGTERM):  # what to do is the leader's decision
        signal.signal(number, signal.SIG_IGN)
    sys.path[:] = json.load(sys.stdin.buffer)  # modules are found where the leader finds them
    from archwright.errors import ArchwrightError
    from archwright.search.together import run_follower
    from archwright.training.team import TeamError

    try:
        run_follower(sys.argv[1:])
    except TeamError:  # the leader says what is to be done
        sys.exit(1)
    except ArchwrightError as error:
        print(f"A process that trains along cannot go on: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
