"""The Internet checksum word by word, as RFC 1071 tells it; what kernels/checksum must come to."""


def ones_sum(data):
    """Return the ones' complement sum of big-endian 16-bit words; an odd last byte is the upper half of a word."""
    if len(data) % 2:
        data += b"\0"
    total = 0
    for i in range(0, len(data), 2):
        total += data[i] << 8 | data[i + 1]
        total = (total & 0xFFFF) + (total >> 16)
    return total


def checksum(data):
    """Return the 16 bits that a header holds."""
    return ~ones_sum(data) & 0xFFFF


def pseudo_header(src, dst, protocol, length):
    """Return the pseudo header's bytes for packed addresses of either family."""
    if len(src) == 4:
        return src + dst + bytes((0, protocol)) + length.to_bytes(2, "big")
    return src + dst + length.to_bytes(4, "big") + bytes((0, 0, 0, protocol))
