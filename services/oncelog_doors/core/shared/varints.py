"""Integers in as few bytes as they need, as protobuf and Kafka write them: 7 bits a byte, the lowest first."""


def varint(number: int) -> bytes:
    """number: from 0 to 2**64 - 1."""
    if number < 128:
        return _SHORT[number]
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def zigzag(number: int) -> bytes:
    """Small numbers of both signs are short. number: of 64 bits."""
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


_SHORT = [bytes((number,)) for number in range(128)]
