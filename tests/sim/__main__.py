"""`python -m tests.sim`, see cli.py."""

from tests.sim.cli import main

raise SystemExit(main())
