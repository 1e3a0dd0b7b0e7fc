"""The Host panel: CPU, memory and disk of the computer."""

from __future__ import annotations

from tui.frame import PanelView
from tui.graphs import Spark
from tui.lines import Span, joined, line
from tui.state import View
from tui.views.gpu import spark_width
from tui.words import NA, gib, percent


def host_panel(view: View, width: int, compact: bool) -> PanelView:
    """The panel for `width` columns of text."""
    shot = view.snapshot
    if shot is None:
        return PanelView("Host", (line(Span(NA, "muted")),))
    host = shot.host
    known = host.ram_total is not None and host.ram_available is not None
    used = (host.ram_total or 0) - (host.ram_available or 0) if known else None
    disk = f"Disk {NA}" if host.disk_free is None else f"Disk {gib(host.disk_free, 0)} GiB free"
    cpu = view.history.get("cpu")
    if compact:
        trend = Spark(0, 100).draw(cpu, max(8, min(60, width - 52)))
        ram = f"RAM {gib(used)}/{gib(host.ram_total)} GiB"
        row = line(f"CPU {percent(host.cpu_percent):>5}  ", Span(trend, "accent"), f"   {ram}   {disk}")
        return PanelView("Host", (row,))
    trend = Spark(0, 100).draw(cpu, spark_width(width))
    plan = shot.plan.host if shot.plan else None
    parts = [] if plan is None else [n for n in (plan.model, plan.kv, plan.compute) if n is not None]
    model = line(f"model {gib(sum(parts))} GiB planned") if parts else ()
    memory = line(f"{gib(used):>5} of {gib(host.ram_total)} GiB")
    return PanelView(
        "Host",
        (
            line(f"CPU     {percent(host.cpu_percent):>7}  ", Span(trend, "accent")),
            line("RAM     ", *joined([memory, model, line(disk)])),
        ),
    )
