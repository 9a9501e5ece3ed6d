"""Workers as Ray actors: shells of a few lines around the same plain classes.

The traps that this file steps around: an actor whose constructor failed is never
restarted (so each is asked ``ready`` with a timeout); eight 1-CPU actors never
schedule on two cores (so one placement group reserves fractions, with a timed
wait); a call that waits on a dead actor's answer fails far from its cause (so a
ticket remembers what it was given, and the culprit is named).
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from arena.errors import ArenaError, BackendError, WorkerLost
from arena.protocols import WorkerSpec
from arena.registry import load_class

OBJECT_STORE_BYTES = 256 << 20
"""Drafts are kilobytes and live for one pass."""


class Shell:
    """An actor around a plain worker."""

    def __init__(self, target: str, options: Mapping[str, Any], threads: int) -> None:
        if threads:  # read by numerical libraries when they are first imported, which is below
            os.environ["OMP_NUM_THREADS"] = str(threads)
        gc.disable()  # imports make objects that stay: to look through them again and again takes a fifth
        try:
            self._worker = load_class(target)(**options)
        finally:
            gc.enable()

    def call(self, method: str, *args: Any) -> Any:
        """Calls a method of the worker; references among ``args`` arrive as values."""
        return getattr(self._worker, method)(*args)


@dataclass(frozen=True, slots=True)
class RayTicket:
    """A call in flight, and the calls whose answers it was given."""

    worker: str
    ref: Any
    needs: tuple[RayTicket, ...] = ()


def _last_words(error: RayActorError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if "creation task" in lines[0]:  # the traceback of the constructor follows; its last line says why
        return f"could not be built: {lines[-1]}"
    return f"died: {lines[0]}"


class RayBackend:
    """Runs each worker as an actor, on a cluster of this process's own or an existing one.

    Args:
        address: Of an existing cluster; None takes RAY_ADDRESS, or starts one here.
        num_cpus: Cores for a cluster started here; None takes those of the machine.
        placement: Strategy of the placement group, ``"PACK"`` or ``"SPREAD"``.
    """

    def __init__(
        self, *, address: str | None = None, num_cpus: int | None = None, placement: str = "PACK"
    ) -> None:
        # Ray reports on itself to its makers unless told not to.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._owns = not ray.is_initialized()
        address = address or os.environ.get("RAY_ADDRESS")  # set inside `ray job submit`
        if self._owns:
            here: dict[str, Any] = {}
            if address is None:
                here = {
                    "num_cpus": num_cpus,
                    "include_dashboard": False,
                    "object_store_memory": OBJECT_STORE_BYTES,
                }
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **here)
        self._placement = placement
        self._group: Any = None
        self._actors: dict[str, Any] = {}
        self._bundles: dict[str, int] = {}
        self._shares: dict[str, dict[str, float]] = {}

    @property
    def gpus(self) -> float:
        """GPUs of the cluster."""
        return float(ray.cluster_resources().get("GPU", 0.0))

    def start(self, specs: Mapping[str, WorkerSpec], *, timeout: float) -> dict[str, Any]:
        """Builds all workers at once; gives what each one's ``ready`` says.

        Workers of a name that is known already are rebuilt in their old place.

        Raises:
            BackendError: The cluster has too little to place them; wanted against available.
            WorkerLost: A worker's constructor failed or took too long.
        """
        deadline = time.monotonic() + timeout
        if not set(specs) <= set(self._bundles):
            self._reserve(specs, timeout)
        for name, spec in specs.items():
            self.stop(name)
            self._actors[name] = self._build(name, spec)
        tickets = [self.submit(name, "ready") for name in specs]
        answers = self.wait(tickets, timeout=max(1.0, deadline - time.monotonic()))
        return dict(zip(specs, answers, strict=True))

    def _share(self, spec: WorkerSpec, n: int) -> dict[str, float]:
        cpus = float(ray.cluster_resources().get("CPU", 1.0))
        share = {"CPU": spec.num_cpus or max(0.01, int(90 * min(1.0, cpus / n)) / 100)}
        return share | ({"GPU": spec.num_gpus} if spec.num_gpus else {})

    def _reserve(self, specs: Mapping[str, WorkerSpec], timeout: float) -> None:
        if self._group is not None:
            raise BackendError("new workers after the start: expected all of them at once.")
        # Kept: a rebuilt worker must fit its old place, however large the cluster is by then.
        self._shares = {name: self._share(spec, len(specs)) for name, spec in specs.items()}
        bundles = list(self._shares.values())
        self._group = placement_group(bundles, strategy=self._placement)
        try:
            ray.get(self._group.ready(), timeout=timeout)
        except GetTimeoutError:
            wanted = {key: sum(bundle.get(key, 0.0) for bundle in bundles) for key in ("CPU", "GPU")}
            raise BackendError(
                f"no place for {len(specs)} workers within {timeout:.0f} s: wanted {wanted}, available "
                f"{ {k: v for k, v in ray.available_resources().items() if k in ('CPU', 'GPU')} }. "
                "Free the cluster, lower backend.worker_cpus or verifier_gpus/drafter_gpus, or raise "
                "backend.start_timeout."
            ) from None
        self._bundles = {name: index for index, name in enumerate(specs)}

    def _build(self, name: str, spec: WorkerSpec) -> Any:
        strategy = PlacementGroupSchedulingStrategy(
            self._group, placement_group_bundle_index=self._bundles[name]
        )
        share = self._shares[name]
        return (
            ray.remote(Shell)
            .options(
                num_cpus=share["CPU"],
                num_gpus=share.get("GPU", 0.0),
                scheduling_strategy=strategy,
                max_concurrency=1,
            )
            .remote(spec.target, dict(spec.options), spec.threads)
        )

    def submit(self, worker: str, method: str, *args: Any) -> RayTicket:
        """Calls a method; tickets among ``args`` are passed by reference, unread."""
        needs = tuple(arg for arg in args if isinstance(arg, RayTicket))
        values = [arg.ref if isinstance(arg, RayTicket) else arg for arg in args]
        return RayTicket(worker, self._actors[worker].call.remote(method, *values), needs)

    def wait(self, tickets: Sequence[RayTicket], *, timeout: float) -> list[Any]:
        """Gives the results, in order."""
        refs = [ticket.ref for ticket in tickets]
        if not refs:
            return []
        _, late = ray.wait(refs, num_returns=len(refs), timeout=timeout)
        for ticket in tickets:
            if ticket.ref in late:
                self._blame(ticket, f"no answer within {timeout:.0f} s", late=True)
        return [self._value(ticket) for ticket in tickets]

    def first(self, tickets: Sequence[RayTicket], *, timeout: float) -> int:
        """Waits until one of the calls is done; gives its index."""
        refs = [ticket.ref for ticket in tickets]
        done, _ = ray.wait(refs, num_returns=1, timeout=timeout)
        if not done:
            self._blame(tickets[0], f"no answer within {timeout:.0f} s", late=True)
        return refs.index(done[0])

    def _value(self, ticket: RayTicket) -> Any:
        try:
            return ray.get(ticket.ref)
        except RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else error
            if isinstance(cause, ArenaError):
                raise cause from None
            self._blame(ticket, f"raised {type(cause).__name__}: {cause}")
        except RayActorError as error:
            self._blame(ticket, _last_words(error))
        except RayError as error:
            self._blame(ticket, f"failed: {type(error).__name__}: {str(error).splitlines()[0]}")

    def _blame(self, ticket: RayTicket, reason: str, *, late: bool = False) -> NoReturn:
        """Raises for the worker at fault: first those whose answers were waited for.

        Who has not answered yet is to blame only if the call is late: a call to a dead
        worker fails at once, while others are still at work on its arguments.
        """
        for need in ticket.needs:
            ready, _ = ray.wait([need.ref], timeout=0.0)
            if ready:
                self._value(need)
            elif late:
                raise WorkerLost(need.worker, reason)
        raise WorkerLost(ticket.worker, reason)

    def stop(self, worker: str) -> None:
        """Frees a worker and what it reserved of a GPU; its place stays for a rebuild."""
        actor = self._actors.pop(worker, None)
        if actor is not None:
            ray.kill(actor, no_restart=True)

    def shutdown(self) -> None:
        """Frees all workers, and the cluster if it was started here."""
        for worker in list(self._actors):
            self.stop(worker)
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None
            self._bundles = {}
        if self._owns and ray.is_initialized():
            ray.shutdown()
