"""TLS by the system's trust store."""

from __future__ import annotations

import functools
import socket
import ssl

from appliance.errors import DownloadError
from appliance.text import clean_line
from appliance.web.types import Broken


class Trust:
    """For one thread: the store's context lets only one handshake run at a time."""

    @functools.cached_property
    def _context(self) -> ssl.SSLContext:
        import truststore  # reading the certificates takes tens of milliseconds

        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def secure(self, sock: socket.socket, host: str, within_s: float) -> ssl.SSLSocket:
        """Encrypt a connection; `sock` must not be used any more, it is closed when this fails.

        Raises DownloadError for a certificate that is not trusted, Broken for everything else.
        """
        sock.settimeout(within_s)
        try:
            secured = self._context.wrap_socket(sock, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            sock.close()
            raise _untrusted(host, error) from None
        except (OSError, ValueError) as error:
            sock.close()
            raise Broken(_failed(host, error)) from None
        secured.setblocking(False)
        return secured


def _untrusted(host: str, error: ssl.SSLCertVerificationError) -> DownloadError:
    return DownloadError(
        f"The certificate of {host} is not trusted.",
        cause=clean_line(error.verify_message or error.reason or "It could not be verified.", 300),
        hint="Add your company's certificate to the system's trust store; it is always checked.",
    )


def _failed(host: str, error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"{host} did not answer in time"
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"no encrypted connection to {host} ({clean_line(error.reason, 80)})"
    return f"no encrypted connection to {host}"
