"""The offline demo, from a clone: the same as `tool-loop demo`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "src"))
from tool_loop.cli import main

if __name__ == "__main__":
    sys.exit(main(["demo", *sys.argv[1:]]))
