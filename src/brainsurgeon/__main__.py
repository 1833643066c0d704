"""`python -m brainsurgeon`."""

import sys

from brainsurgeon.app.cli import main

sys.exit(main())
