"""Which candidate to take: the most that fits, given up in a fixed order.

What the profile wants goes first, from most to base. Then give way, each only when the one before was not
enough: the micro-batch, the draft model, the KV type, the projector's place, experts (to RAM), the context
(not below what was asked or the profile's floor), layers. Nothing that was asked for is ever changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from appliance.planning.choice.candidate import Candidate, Estimate
from appliance.planning.choice.estimate import Estimator
from appliance.planning.choice.profiles import UBATCH, Want, floor_ctx, kv_choices, largest, ubatches, wants
from appliance.planning.choice.splits import (
    could_fit,
    default_spread,
    devices_fit,
    fits,
    host_fits,
    host_room,
    spread,
)

_STEP = 1_024


@dataclass(frozen=True, slots=True)
class Choice:
    """A candidate with its bytes, and what was wanted before something had to give."""

    candidate: Candidate
    estimate: Estimate
    fits: bool
    wanted: Candidate


def choose(estimator: Estimator) -> Choice:
    """The best candidate that fits; else the smallest one, with `fits` False."""
    return _Search(estimator).run()


def clamp_layers(estimator: Estimator, asked: int) -> int:
    """Layers as the engine takes them: a negative number and more than all mean all."""
    return estimator.all_layers if asked < 0 else min(asked, estimator.all_layers)


def placed(estimator: Estimator, candidate: Candidate) -> tuple[Candidate, Estimate] | None:
    """The candidate with the first way to share its layers that fits."""
    room = host_room(estimator)
    if room is not None and estimator.at_least_in_ram(candidate) > room:
        return None
    if not could_fit(estimator, candidate):
        return None
    for spread_out in spread(estimator, candidate):
        estimate = estimator.estimate(spread_out)
        if fits(estimator, estimate):
            return spread_out, estimate
    return None


class _Search:
    def __init__(self, estimator: Estimator) -> None:
        self._est = estimator
        self._asked = estimator.request.gpu_layers
        self._kv = kv_choices(estimator.shape, estimator.request)
        self._moe = len(estimator.moe_blocks) and max(estimator.moe_blocks) + 1
        """All experts are in RAM with so many first blocks."""

    def run(self) -> Choice:
        """The choice, with what is left over given back."""
        return self._given_back(self._chosen())

    def _chosen(self) -> Choice:
        est = self._est
        if not est.devices:
            return self._climb(0, on_gpu=False)
        if self._asked is not None:
            layers = clamp_layers(est, self._asked)
            return self._climb(layers, on_gpu=layers > 0)
        full = self._climb(est.all_layers, on_gpu=True)
        return full if full.fits else self._fewer(full.wanted)

    def _climb(self, layers: int, *, on_gpu: bool) -> Choice:
        """The first rung that fits with this many layers, else the last one."""
        wanted: Candidate | None = None
        last = None
        for candidate in self._rungs(layers, on_gpu):
            wanted = wanted or default_spread(self._est, candidate)
            found = placed(self._est, candidate) if self._fast_enough(candidate) else None
            if found is not None:
                return Choice(*found, True, wanted)
            last = candidate
        assert wanted is not None
        assert last is not None
        last = default_spread(self._est, last)
        return Choice(last, self._est.estimate(last), False, wanted)

    def _given_back(self, choice: Choice) -> Choice:
        """A step frees more than was missing: first slots, then the micro-batch come back as far as they fit.

        Layers, context, experts and KV type stay, so more memory still never means less of them.
        """
        if not choice.fits:
            return choice
        taken = choice.candidate
        slots = range(choice.wanted.parallel, taken.parallel, -1)
        choice = self._first_that_fits(choice, [replace(taken, parallel=count) for count in slots])
        taken = choice.candidate
        sizes = ubatches(self._est, taken.ctx, on_gpu=taken.gpu_layers > 0)
        larger = [replace(taken, n_ubatch=size) for size in sizes if size > taken.n_ubatch]
        return self._first_that_fits(choice, larger)

    def _first_that_fits(self, choice: Choice, better: Iterable[Candidate]) -> Choice:
        for candidate in better:
            found = placed(self._est, candidate) if self._fast_enough(candidate) else None
            if found is not None:
                return replace(choice, candidate=found[0], estimate=found[1])
        return choice

    def _rungs(self, layers: int, on_gpu: bool) -> Iterator[Candidate]:
        """In order of sacrifice. Later steps are looked at only when the caller asks for them."""
        wanted = self._wants(layers, on_gpu)
        for want in wanted:
            sizes = ubatches(self._est, want.ctx, on_gpu=on_gpu)
            for n_ubatch in sizes:
                yield self._first(layers, want, n_ubatch, on_gpu)
        base = self._first(layers, wanted[-1], sizes[-1], on_gpu)
        for smaller in self._smaller(base):
            base = smaller
            yield base
        if self._moe and layers and self._est.request.cpu_moe is None:
            base = self._with_experts_in_ram(base)
            yield base
        yield from self._shorter(base)

    def _smaller(self, base: Candidate) -> Iterator[Candidate]:
        """Without draft model, with smaller KV types, with the projector in RAM: each on top of the last."""
        if base.draft == "gpu":
            base = replace(base, draft=None)
            yield base
        for kv_type in self._kv[1:]:
            base = replace(base, kv_type=kv_type)
            yield base
        if base.mmproj == "gpu":
            base = replace(base, mmproj="cpu")
            yield base
        yield base

    def _with_experts_in_ram(self, base: Candidate) -> Candidate:
        """The fewest blocks whose experts have to go to RAM; as many as RAM holds when that is not enough."""
        moe, most = self._moe, self._most_experts_in_ram(base)
        kept = largest(moe - most, moe - 1, lambda n: self._fits(replace(base, cpu_moe=moe - n)))
        return replace(base, cpu_moe=min(moe - kept, most))

    def _most_experts_in_ram(self, base: Candidate) -> int:
        """So many of the first blocks that RAM holds their experts."""

        def held(count: int) -> bool:
            candidate = default_spread(self._est, replace(base, cpu_moe=count))
            return host_fits(self._est, self._est.estimate(candidate))

        return max(largest(1, self._moe, held), 0)

    def _shorter(self, base: Candidate) -> Iterator[Candidate]:
        """Less context down to the floor; for an asked context, down to one slot."""
        request = self._est.request
        floor = floor_ctx(self._est)
        if base.ctx > floor:
            low, high = -(-floor // _STEP), (base.ctx - 1) // _STEP
            found = largest(low, high, lambda n: self._fits(self._cut(base, n * _STEP)))
            yield self._cut(base, max(found * _STEP, floor))
            base = self._cut(base, floor)
        if request.ctx and not request.parallel:
            for slots in range(base.parallel - 1, 0, -1):
                base = replace(base, parallel=slots)
                yield base
        yield base

    def _cut(self, base: Candidate, ctx: int) -> Candidate:
        """With less context, and a micro-batch that follows it where a text is taken in one piece."""
        if not self._est.in_one_piece:
            return replace(base, ctx=ctx)
        return replace(base, ctx=ctx, n_ubatch=ubatches(self._est, ctx, on_gpu=base.gpu_layers > 0)[0])

    def _fewer(self, wanted: Candidate) -> Choice:
        """As many layers as fit with everything else at its floor; without any, a plan for RAM."""
        est = self._est
        *_, least = self._rungs(est.all_layers, True)
        short_of_ram: Choice | None = None
        for layers in range(est.all_layers - 1, 0, -1):
            candidate = replace(least, gpu_layers=layers)
            for spread_out in spread(est, candidate) if could_fit(est, candidate) else ():
                estimate = est.estimate(spread_out)
                if not devices_fit(est, estimate):
                    continue
                if host_fits(est, estimate):
                    return Choice(spread_out, estimate, True, wanted)
                short_of_ram = Choice(spread_out, estimate, False, wanted)
            if short_of_ram is not None:
                break  # fewer layers need more RAM
        in_ram = self._in_ram(least, wanted)
        return short_of_ram if not in_ram.fits and short_of_ram is not None else in_ram

    def _in_ram(self, least: Candidate, wanted: Candidate) -> Choice:
        """No layer fits a GPU. The context stays at its floor: a larger GPU must not mean less of it."""
        base = replace(least, gpu_layers=0, cpu_moe=0, draft=None, shares=())
        for kv_type in self._kv:  # a projector is in RAM already
            candidate = replace(base, kv_type=kv_type)
            estimate = self._est.estimate(candidate)
            if fits(self._est, estimate):
                return Choice(candidate, estimate, True, wanted)
        return Choice(candidate, estimate, False, wanted)

    def _wants(self, layers: int, on_gpu: bool) -> list[Want]:
        def room(ctx: int) -> bool:
            least = ubatches(self._est, ctx, on_gpu=on_gpu)[-1]
            *_, low = self._smaller(self._first(layers, Want(ctx, 1), least, on_gpu))
            if self._keeps_goal(low, ctx) and self._fits(low):
                return True
            if not self._moe or not layers or self._est.request.cpu_moe is not None:
                return False
            low = replace(low, cpu_moe=self._most_experts_in_ram(low))
            return self._keeps_goal(low, ctx) and self._fits(low)

        alone = self._first(layers, Want(floor_ctx(self._est), 1), UBATCH, on_gpu)
        fast = self._keeps_goal(alone, 0)
        return wants(self._est, on_gpu=on_gpu, fast=fast, docs_room=room)

    def _fast_enough(self, candidate: Candidate) -> bool:
        """`docs` takes no context by itself that is too slow when it is full."""
        request = self._est.request
        if request.profile != "docs" or request.ctx or candidate.ctx <= floor_ctx(self._est):
            return True
        return self._keeps_goal(candidate, candidate.ctx)

    def _keeps_goal(self, candidate: Candidate, filled: int) -> bool:
        """Whether one request still decodes at the goal with its whole context filled; unknown speeds do."""
        speed = self._est.speed(default_spread(self._est, candidate), filled)
        return speed is None or speed >= self._est.request.decode_goal

    def _first(self, layers: int, want: Want, n_ubatch: int, on_gpu: bool) -> Candidate:
        est, side = self._est, "gpu" if on_gpu else "cpu"
        return Candidate(
            layers,
            want.ctx,
            want.slots,
            self._kv[0],
            n_ubatch,
            min(est.request.cpu_moe or 0, self._moe),
            None if est.mmproj is None else side,  # type: ignore[arg-type]
            None if est.draft is None else side,  # type: ignore[arg-type]
        )

    def _fits(self, candidate: Candidate) -> bool:
        return placed(self._est, candidate) is not None
