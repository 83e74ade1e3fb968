"""Describes for operators why a connection failed."""

from __future__ import annotations

import os
import re
import socket
import ssl

_ERRNO = re.compile(r"\[Errno (\d{1,4})\]")


def connection_reason(error: BaseException) -> str:
    """Return the cause given by the operating system or TLS: refused, unknown host, certificate, timeout."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, socket.gaierror):
            return "the name of the host is not known"
        if isinstance(seen, ssl.SSLCertVerificationError):
            return f"the certificate is not accepted ({seen.verify_message})"
        if isinstance(seen, ssl.SSLError):
            return f"TLS failed ({(seen.reason or 'no reason given').lower().replace('_', ' ')})"
        if isinstance(seen, TimeoutError):
            return "no connection in time"
        if isinstance(seen, OSError) and (number := _number(seen)):
            return os.strerror(number).lower()
        seen = seen.__cause__ or seen.__context__
    return "can't connect"


def _number(error: OSError) -> int:
    """Return the errno; for an error about several addresses of a host, the first one. 0 if there is none."""
    found = _ERRNO.search(str(error))
    return error.errno or (int(found[1]) if found is not None else 0)
