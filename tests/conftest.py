"""What all tests share: the deadline that suits compiled code, and where strategies live."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
settings.register_profile("fedgem", deadline=None, derandomize=True)
settings.load_profile("fedgem")
