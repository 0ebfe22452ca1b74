"""`python -m data_prep`."""

from .cli import main

raise SystemExit(main())
