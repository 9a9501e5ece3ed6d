"""The workers of a run: started, asked, rebuilt when they are lost, or given up.

This is the one place where a fault becomes a decision. A worker that died, hung, raised
or grew too large is built anew while ``backend.max_restarts`` last, and the round is
played again from its barrier; after that, a drafter is withdrawn, and without verifier
or scoreboard the run stops and can be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from arena import chaos
from arena.config import Experiment
from arena.engines.health import own_mb
from arena.errors import ArenaError, ConfigError, DrafterFault, VerifierFault, WorkerLost
from arena.protocols import Backend, WorkerSpec


class Lives:
    """Who works, and how often each was built anew.

    Args:
        experiment: What is played.
        backend: Where workers run.
        specs: How to build each of them.
        note: Told of every loss.
    """

    def __init__(
        self,
        experiment: Experiment,
        backend: Backend,
        specs: Mapping[str, WorkerSpec],
        note: Callable[[str], None],
    ) -> None:
        section = experiment.backend
        self._alone = section.kind != "local"
        if section.memory_limit_mb and not self._alone:
            raise ConfigError(
                "backend.memory_limit_mb needs workers with memory of their own, and on backend.kind 'local' "
                "all share one process. Set backend.kind=ray, or backend.memory_limit_mb=null."
            )
        self._section, self._chaos = section, experiment.chaos
        self._backend, self._specs, self._note = backend, specs, note
        self._rebuilt: dict[str, int] = {}

    def start(self, names: Sequence[str]) -> dict[str, Any]:
        """Builds workers; gives what each one's ``ready`` says."""
        wanted = {
            name: chaos.armed(
                name, self._specs[name], self._chaos, self._rebuilt.get(name, 0), alone=self._alone
            )
            for name in names
        }
        return dict(self._backend.start(wanted, timeout=self._section.start_timeout))

    def call(self, worker: str, method: str, *args: Any) -> Any:
        """Asks one worker and waits for its answer."""
        ticket = self._backend.submit(worker, method, *args)
        return self._backend.wait([ticket], timeout=self._section.call_timeout)[0]

    def stop(self, name: str) -> None:
        """Frees a worker."""
        self._backend.stop(name)

    def lose(
        self, error: DrafterFault | WorkerLost, alive: tuple[str, ...], withdrawn: list[tuple[str, str]]
    ) -> tuple[str, ...]:
        """Decides about a lost worker.

        Args:
            error: What happened, and to whom.
            alive: Drafters that play.
            withdrawn: Takes (drafter, reason) of one that is given up.

        Returns:
            The drafters that play on.

        Raises:
            VerifierFault: The verifier or the scoreboard is lost for good.
        """
        name = error.drafter if isinstance(error, DrafterFault) else error.worker
        self._rebuilt[name] = self._rebuilt.get(name, 0) + 1
        # A drafter that answers garbage would do so again; one that is lost may have been unlucky.
        if isinstance(error, WorkerLost) and self._rebuilt[name] <= self._section.max_restarts:
            self._note(f"{name} was lost ({error.reason}); rebuilding it and replaying the round")
            try:
                self.start([name])
                return alive
            except ArenaError as again:
                error = WorkerLost(name, f"{error.reason}; it could not be rebuilt: {again}")
        if name not in alive:
            raise VerifierFault(
                f"the {name} was lost for good: {error.reason}. The rounds before this one are safe."
            ) from error
        self._note(f"{name} is withdrawn: {error.reason}")
        withdrawn.append((name, error.reason))
        self._backend.stop(name)
        return tuple(other for other in alive if other != name)

    def rewind(self, learners: Sequence[str], snapshots: Mapping[str, Mapping[str, bytes]]) -> None:
        """Takes learners back to the barrier; those without a snapshot to their birth."""
        for name in learners:
            if name in snapshots:
                self.call(name, "restore", snapshots[name])
            else:
                self._backend.stop(name)
                self.start([name])

    def memory_mb(self, names: Sequence[str]) -> float:
        """Gives what workers and this process hold together, MiB; each worker is held to the limit, if any.

        Memory that processes of the run share counts once in the sum, and whole against the limit; of what
        they share with others, their part.

        Raises:
            WorkerLost: Naming the first that holds more.
        """
        limit, total = self._section.memory_limit_mb, own_mb()
        for name in names if self._alone else ():  # else all are this process
            health = self.call(name, "health")
            if limit and health["memory_mb"] > limit:
                held = f"{health['memory_mb']:.0f} MiB of memory"
                raise WorkerLost(name, f"held {held}; backend.memory_limit_mb is {limit}")
            total += float(health["own_mb"])
        return total
