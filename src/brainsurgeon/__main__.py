"""``python -m brainsurgeon``."""

import sys

from brainsurgeon.cli import main

sys.exit(main())
