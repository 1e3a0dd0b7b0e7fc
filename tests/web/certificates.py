"""A certificate authority for one test run, made by the `openssl` command."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class Authority:
    """`file` is what a client has to trust."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "ca.pem"

    def context(self, *names: str) -> ssl.SSLContext:
        """A server's context with a certificate for `names` (`DNS:localhost`, `IP:127.0.0.1`)."""
        stem = self.folder / "-".join(name.replace(":", "_") for name in names)
        key, request, cert = (stem.with_suffix(end) for end in (".key", ".csr", ".crt"))
        extensions = stem.with_suffix(".ext")
        extensions.write_text(f"subjectAltName={','.join(names)}\nbasicConstraints=CA:FALSE\n")
        _openssl("req", "-new", *_KEY, "-subj", "/CN=test", "-keyout", key, "-out", request)
        _openssl("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self.folder / "ca.key",
                 "-set_serial", "2", "-days", "2", "-extfile", extensions, "-out", cert)  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        return context


def authority(folder: Path) -> Authority:
    """A new authority whose files are in `folder`."""
    config = folder / "ca.cnf"
    config.write_text(
        "[req]\ndistinguished_name=dn\nx509_extensions=ca\n[dn]\n"
        "[ca]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\nsubjectKeyIdentifier=hash\n"
    )
    _openssl("req", "-x509", *_KEY, "-config", config, "-subj", "/CN=Test authority", "-days", "2",
             "-keyout", folder / "ca.key", "-out", folder / "ca.pem")  # fmt: skip
    return Authority(folder)


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=30)
