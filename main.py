"""One question, from a clone: the same as `tool-loop ask`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "src"))
from tool_loop.cli import main

if __name__ == "__main__":
    sys.exit(main(["ask", *sys.argv[1:]]))
