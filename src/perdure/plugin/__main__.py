"""`python -m perdure.plugin hook` answers a hook of a client, `… statusline` prints its status line."""

from __future__ import annotations

import sys

from perdure.plugin.hook import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
