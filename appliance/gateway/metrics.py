"""Prometheus metrics with a registry of their own. Labels are bounded: codes, lanes and catalog names,
never a client's text."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from appliance.gateway.admission import QueueSnapshot
from appliance.gateway.course import Course
from appliance.gateway.machine_metrics import MachineCollector
from appliance.monitor import MonitorSnapshot

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """What `/metrics` shows."""

    def __init__(self, machine: Callable[[], MonitorSnapshot | None] = lambda: None) -> None:
        self.registry = CollectorRegistry()
        made = self.registry
        made.register(MachineCollector(machine))
        self._requests = Counter(
            "appliance_requests", "Inference requests", ("path", "lane", "route", "reason", "status"),
            registry=made,
        )  # fmt: skip
        self._running = Gauge("appliance_requests_in_flight", "Inference requests now", registry=made)
        self._tokens = Counter("appliance_tokens", "Tokens", ("route", "direction"), registry=made)
        self._ttft = Histogram(
            "appliance_time_to_first_token_seconds", "From arrival to the first token", ("route",),
            buckets=_SECONDS, registry=made,
        )  # fmt: skip
        self._total = Histogram(
            "appliance_request_duration_seconds", "From arrival to the end", ("route",),
            buckets=_SECONDS, registry=made,
        )  # fmt: skip
        self._queued = Histogram(
            "appliance_queue_time_seconds", "Wait for a slot", ("lane",), buckets=_SECONDS, registry=made
        )
        self._degraded = Counter(
            "appliance_degraded", "Answers that were less than asked", ("code",), registry=made
        )
        self._waiting = Gauge("appliance_queue_waiting", "Waiting requests", ("model", "lane"), registry=made)
        self._slots = Gauge("appliance_slots_busy", "Requests inside the engine", ("model",), registry=made)

    def began(self) -> None:
        """A request arrived."""
        self._running.inc()

    def ended(self, course: Course) -> None:
        """A request is over."""
        self._running.dec()
        status = str(course.status if course.status is not None else 500)
        self._requests.labels(course.path, course.lane, course.route, course.reason, status).inc()
        for direction, count in (("in", course.tokens_in), ("out", course.tokens_out)):
            if count:
                self._tokens.labels(course.route, direction).inc(count)
        if course.ttft_s is not None:
            self._ttft.labels(course.route).observe(course.ttft_s)
        if course.total_s is not None:
            self._total.labels(course.route).observe(course.total_s)
        if course.queue_s is not None:
            self._queued.labels(course.lane).observe(course.queue_s)
        for code in course.degraded:
            self._degraded.labels(code).inc()

    def queue(self, model: str, snapshot: QueueSnapshot) -> None:
        """The queue of a model, a name of the catalog."""
        for lane, waiting in snapshot.lanes.items():
            self._waiting.labels(model, lane).set(waiting)
        self._slots.labels(model).set(snapshot.running)

    def render(self) -> bytes:
        """The text format."""
        return generate_latest(self.registry)
