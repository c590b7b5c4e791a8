"""`python -m tests.sim.cluster`, see cli.py."""

from tests.sim.cluster.cli import main

raise SystemExit(main())
