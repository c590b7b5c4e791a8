"""`python -m tests.whole`, see cli.py."""

from tests.whole.cli import main

raise SystemExit(main())
