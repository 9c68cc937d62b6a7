"""`python -m distbench` is the command `distbench`."""

from distbench.cli import main

if __name__ == "__main__":
    main()
