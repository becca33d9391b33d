"""Every error that Oncelog raises, for those who catch them: `from oncelog.errors import ProducerFenced`.

The tree and what to do about each error: `oncelog.core.errors`, where they are defined; those of stores of effects:
`oncelog.core.effect_errors`; those of an outbox: `oncelog.core.outbox_errors`; those of messages that a program does
not read: `oncelog.core.format_errors`.
"""

from oncelog.core.effect_errors import *  # noqa: F403
from oncelog.core.effect_errors import __all__ as _of_effects
from oncelog.core.errors import *  # noqa: F403
from oncelog.core.errors import __all__ as _of_the_log
from oncelog.core.format_errors import *  # noqa: F403
from oncelog.core.format_errors import __all__ as _of_formats
from oncelog.core.outbox_errors import *  # noqa: F403
from oncelog.core.outbox_errors import __all__ as _of_the_outbox

__all__ = [*_of_the_log, *_of_effects, *_of_the_outbox, *_of_formats]  # noqa: PLE0604
