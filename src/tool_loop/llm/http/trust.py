"""Whom TLS trusts: the system's certificates, or those that SSL_CERT_FILE and SSL_CERT_DIR name."""

from __future__ import annotations

import os
import ssl
import sys
from functools import lru_cache

from tool_loop.errors import ConfigurationError


def trusted() -> ssl.SSLContext:
    """One context for all event loops and threads. Reading the certificates takes 40 ms, so it is done once."""
    return _trusted(os.environ.get("SSL_CERT_FILE") or None, os.environ.get("SSL_CERT_DIR") or None)


@lru_cache(4)
def _trusted(file: str | None, folder: str | None) -> ssl.SSLContext:
    if file or folder:
        try:
            context = ssl.create_default_context(cafile=file, capath=folder)
        except OSError as error:  # those of TLS among them
            named = " and ".join(filter(None, (file and f"SSL_CERT_FILE={file}", folder and f"SSL_CERT_DIR={folder}")))
            raise ConfigurationError(f"no certificates can be read from {named}: {error}") from error
    elif sys.platform in ("win32", "darwin"):
        # The stores of these systems are no files: they are asked about each certificate.
        import truststore

        context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        context = ssl.create_default_context()
        if not _finds_any(context):
            _search(context)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _finds_any(context: ssl.SSLContext) -> bool:
    # Certificates in a folder are read when one is asked for, and are in no count until then.
    folder = ssl.get_default_verify_paths().capath
    return context.cert_store_stats()["x509_ca"] > 0 or bool(folder and os.listdir(folder))  # noqa: PTH208


def _search(context: ssl.SSLContext) -> None:
    """Where systems keep theirs, for a Python that was built on another one."""
    places = (
        "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Gentoo
        "/etc/ssl/cert.pem",  # Alpine, Arch, Fedora, the BSDs
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora 44, RHEL 11
        "/etc/pki/tls/certs/ca-bundle.crt",  # older Fedora, RHEL, CentOS
        "/etc/ssl/ca-bundle.pem",  # SUSE
    )
    for place in places:
        if os.path.isfile(place):  # noqa: PTH113 - pathlib would have to be loaded
            context.load_verify_locations(cafile=place)
            return
