"""Every error that Oncelog raises, for those who catch them: `from oncelog.errors import ProducerFenced`.

The tree and what to do about each error: `oncelog.core.errors`, where they are defined.
"""

from oncelog.core.errors import *  # noqa: F403
from oncelog.core.errors import __all__  # noqa: F401
