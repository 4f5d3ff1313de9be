"""`python -m kvferry` is the command `kvferry`."""

import sys

from kvferry._command import main

sys.exit(main())
