"""Why a connection could not be made, in words for operators."""

from __future__ import annotations

import os
import re
import socket
import ssl

_ERRNO = re.compile(r"\[Errno (\d{1,4})\]")


def connection_reason(error: BaseException) -> str:
    """The cause that the operating system or TLS gives: refused, an unknown host, a certificate, a time-out."""
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
    """The errno; of an error for several addresses of a host, that of the first. 0: there is none."""
    found = _ERRNO.search(str(error))
    return error.errno or (int(found[1]) if found is not None else 0)
