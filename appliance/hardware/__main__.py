"""`python -m appliance.hardware`: one JSON line that says what this machine has, for `detect_safely`."""

from __future__ import annotations

import json
import sys

from appliance.hardware.detection import detect

if __name__ == "__main__":
    sys.stdout.write(json.dumps(detect(wake="--wake" in sys.argv[1:]).to_json()) + "\n")
