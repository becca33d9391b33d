"""Bounds on the JSON of a request body, compared before it is parsed.

Parsing makes an object of each value: 8 MiB of `{},` would take more than a gigabyte. So the values are counted first,
by a scan that keeps nothing: a string counts once, as do brackets that open and commas, and the scan ends at the limit.
"""

import re

from oncelog.core.errors import InvalidArgument, MessageTooLarge

#: Deeper than any body of this interface, and far above no parser's stack.
DEPTH_MAX = 32
#: Strings, brackets and commas of one body, unless an application says otherwise.
VALUES_MAX = 65_536
#: Anchored, with possessive quantifiers: no input is scanned twice.
_TOKEN = re.compile(rb'[^"\[\]{},]*+("[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},])', re.DOTALL)


def check_json(body: bytes, *, values_max: int = VALUES_MAX) -> None:
    """Raises MessageTooLarge above `values_max`, InvalidArgument where the body is nested too deeply or not UTF-8.

    What is no JSON otherwise passes: the parser tells what is wrong with it.
    """
    if b"\0" in body:
        # UTF-16 and UTF-32, which the parser would detect, and which this scan would read wrongly.
        raise InvalidArgument("the body is not JSON in UTF-8", field="body")
    values = depth = at = 0
    while (match := _TOKEN.match(body, at)) is not None:
        at = match.end()
        token = body[at - 1]
        if token in b"]}":
            depth -= 1
            continue
        values += 1
        if values > values_max:
            message = f"the body holds more than {values_max} values: send less in one request"
            raise MessageTooLarge(message, field="body", limit=values_max)
        if token in b"[{":
            depth += 1
            if depth > DEPTH_MAX:
                message = f"the body is not JSON that can be read: it is nested deeper than {DEPTH_MAX}"
                raise InvalidArgument(message, field="body", limit=DEPTH_MAX)
