"""History as columns: gaps stay gaps, unknown stays None, odd rows are passed over."""

from __future__ import annotations

from appliance.client import Client
from appliance.client.history import HistoryDocument
from tests.client.stub_daemon import StubDaemon

DOCUMENT = {
    "step": 60, "from": 0.0, "to": 600.0,
    "devices": [
        {
            "device": "gpu:GPU-1", "name": "RTX\x1b[2J", "columns": ["at", "state", "temperature", "plugged"],
            "rows": [[60.0, "warm", 80.5, None], [300.0, None, None, True], ["x", "cool", 1, None], [1], 7],
        },
        5,
    ],
}  # fmt: skip


def test_rows_become_columns(client: Client, stub: StubDaemon) -> None:
    stub.script.answers["GET", "/api/history"] = (200, DOCUMENT)
    found = client.history(600, step=60, device="gpu:GPU-1")
    gpu = found.of("gpu:GPU-1")
    assert gpu is not None
    assert (found.step, found.since, found.until, gpu.name) == (60, 0.0, 600.0, "RTX[2J")
    assert gpu.at == (60.0, 300.0)
    assert gpu.numbers("temperature") == (80.5, None)
    assert gpu.columns["state"] == ("warm", None)
    assert gpu.columns["plugged"] == (None, True)
    assert gpu.numbers("a column of tomorrow") == (None, None)
    query = {"seconds": ["600"], "step": ["60"], "device": ["gpu:GPU-1"]}
    assert stub.asked("GET", "/api/history")[0].query == query
    client.history()
    assert stub.asked("GET", "/api/history")[1].query == {"seconds": ["3600"], "step": ["auto"]}


def test_an_odd_document_is_an_empty_history() -> None:
    for odd in (None, 5, {"devices": 7}, {"devices": [{"rows": [[1]], "columns": ["state"]}]}):
        assert all(one.at == () for one in HistoryDocument.parse(odd).devices)
