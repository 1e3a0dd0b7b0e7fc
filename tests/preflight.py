"""What the tests need from the system: names what is missing and the command for it.

`python tests/preflight.py` checks what `make test` needs, `... vulkan` also what `make test-all` needs.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

TOOLS = {
    "gcc": ("gcc", "builds the NVML stand-in and the llama-cpp-python engine"),
    "g++": ("g++", "builds the llama-cpp-python engine"),
    "cmake": ("cmake", "builds the llama-cpp-python engine"),
    "tmux": ("tmux", "shows the terminal UI on a real pseudo-terminal"),
    "openssl": ("openssl", "makes the certificates of the TLS tests"),
}
VULKAN_DRIVER = ("mesa-vulkan-drivers", "the Vulkan device made of the CPU")


def missing(with_vulkan: bool) -> list[tuple[str, str]]:
    """(Debian package, what it is for) of everything that is not here."""
    found = [(package, use) for tool, (package, use) in TOOLS.items() if shutil.which(tool) is None]
    if with_vulkan and not list(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json")):
        found.append(VULKAN_DRIVER)
    return found


def main(arguments: list[str]) -> int:
    gaps = missing("vulkan" in arguments)
    if not gaps:
        return 0
    for package, use in gaps:
        print(f"missing: {package} ({use})")
    print("Install it and run the tests again: apt-get install -y " + " ".join(p for p, _ in gaps))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
