"""``python -m robot_rl.cli`` is ``robot-rl``."""

import sys

from robot_rl.cli import main

if __name__ == "__main__":  # worker processes import this module again
    sys.exit(main())
