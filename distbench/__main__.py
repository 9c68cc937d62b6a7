"""`python -m distbench` is the command `distbench`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command; Ctrl-C is told in words, also while its modules are imported."""
    try:
        from distbench.cli import main as run
    except KeyboardInterrupt:
        print("distbench: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
