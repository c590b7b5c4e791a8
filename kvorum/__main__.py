"""`python -m kvorum`: the `kvorum` command."""

from kvorum.cli.main import main

if __name__ == "__main__":
    main()
