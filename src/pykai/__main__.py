"""`python -m pykai` is the command `kai`."""

from pykai.cli import main

if __name__ == "__main__":
    main(prog_name="kai")
