"""Ray gives what the reference backend gives, and names who is missing."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import pytest
import ray

from arena import config
from arena.errors import BackendError, DrafterFault, WorkerLost
from arena.protocols import WorkerSpec
from arena.store import RunDirectory
from arena.tournament import Watcher

from ..runs import body, files, run

HELPERS = str(Path(__file__).parent / "workers.py")
FAULTY = str(Path(__file__).parent.parent / "unit" / "faulty.py")


def test_garbage_is_collected_again_once_a_worker_is_built() -> None:
    from arena.backends.ray import Shell

    assert gc.isenabled()
    Shell("arena.engines.seats:ScoreboardSeat", {}, 0)
    assert gc.isenabled()
    with pytest.raises(TypeError):
        Shell("arena.engines.seats:ScoreboardSeat", {"unknown": 1}, 0)
    assert gc.isenabled()


@pytest.fixture
def backend(cluster: None):
    from arena.backends.ray import RayBackend

    backend = RayBackend()
    yield backend
    backend.shutdown()


def test_files_equal_the_local_backend_with_everything_shuffled(cluster: None, tmp_path: Path) -> None:
    field = {**body()["drafters"], "learner": {"kind": "sprinter", "order": 2}}
    values = body(drafters=field, engine={"learn_every": 2})
    run(tmp_path / "local", values)
    shuffled = {**values, "drafters": dict(reversed(list(field.items()))), "backend": {"kind": "ray"}}
    run(tmp_path / "ray", shuffled)
    assert files(tmp_path / "ray") == files(tmp_path / "local")


def test_lane_groups_in_flight_change_nothing(cluster: None, tmp_path: Path) -> None:
    run(tmp_path / "local", body())
    run(tmp_path / "ray", body(engine={"lanes": 2, "in_flight": 3}, backend={"kind": "ray"}))
    assert files(tmp_path / "ray") == files(tmp_path / "local")


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tournament replayed by the local backend; its trace lies beside it."""
    path = tmp_path_factory.mktemp("replayed") / "local"
    run(path.with_name("live"), body())
    run(path, replay_of(path))
    return path


def replay_of(replayed: Path, **backend: Any) -> dict[str, Any]:
    field = {**body()["drafters"], "learner": {"kind": "sprinter", "order": 2}}
    engine = {"kind": "replay", "trace": str(replayed.with_name("live")), "workers": 2}
    return body(drafters=field, engine=engine, backend=backend)


def test_a_replayed_tournament_is_the_same_within_a_memory_limit(
    cluster: None, replayed: Path, tmp_path: Path
) -> None:
    run(tmp_path / "ray", replay_of(replayed, kind="ray", memory_limit_mb=4000))
    assert files(tmp_path / "ray") == files(replayed)
    local, ours = (RunDirectory.open(one).manifest["took"] for one in (replayed, tmp_path / "ray"))
    # The pool's processes and the scoreboard's count too.
    assert 0 < local["memory_mb"] < ours["memory_mb"]


def test_a_replay_worker_that_dies_is_rebuilt_and_leaves_no_trace(
    cluster: None, replayed: Path, tmp_path: Path
) -> None:
    once, notes = tmp_path / "died", []
    values = replay_of(replayed, kind="ray")
    values["drafters"]["copy"] = {"kind": f"{HELPERS}:Mortal", "marker": str(once)}
    run(tmp_path / "ray", values, Watcher(note=notes.append))
    assert once.exists()
    assert any("was lost" in note and "replay-" in note for note in notes)
    assert files(tmp_path / "ray") == files(replayed)


def test_a_drafter_that_dies_is_rebuilt_and_leaves_no_trace(cluster: None, tmp_path: Path) -> None:
    once = tmp_path / "died"
    field = {**body()["drafters"], "copy": {"kind": f"{HELPERS}:Mortal", "marker": str(once)}}
    run(tmp_path / "ray", body(drafters=field, backend={"kind": "ray"}))
    assert once.exists()
    run(tmp_path / "local", body())
    assert files(tmp_path / "ray") == files(tmp_path / "local")


def test_a_drafter_that_dies_again_is_withdrawn(cluster: None, tmp_path: Path) -> None:
    field = {**body()["drafters"], "bad": {"kind": f"{HELPERS}:Mortal", "marker": ""}}
    run(tmp_path / "ray", body(drafters=field, backend={"kind": "ray"}))
    import json

    first = json.loads((tmp_path / "ray" / "rounds.jsonl").read_text().splitlines()[0])
    assert [item["drafter"] for item in first["withdrawn"]] == ["bad"]
    assert "died" in first["withdrawn"][0]["reason"]


def test_a_hang_is_named(backend) -> None:
    backend.start({"slow": WorkerSpec(f"{HELPERS}:Slow", {})}, timeout=60)
    with pytest.raises(WorkerLost, match=r"'slow': no answer within 1 s"):
        backend.wait([backend.submit("slow", "nap", 30)], timeout=1)


def test_the_culprit_is_named_not_who_waited_for_it(backend) -> None:
    spec = WorkerSpec(f"{HELPERS}:Slow", {})
    backend.start({"first": spec, "second": spec}, timeout=60)
    answer = backend.submit("first", "fall")
    with pytest.raises(WorkerLost, match="'first': raised ValueError"):
        backend.wait([backend.submit("second", "echo", answer)], timeout=30)


def test_a_constructor_that_fails_is_told_at_once(backend) -> None:
    with pytest.raises(BackendError, match=r"'bad'.*no such thing"):
        backend.start({"bad": WorkerSpec(f"{HELPERS}:Slow", {"fail": "no such thing"})}, timeout=60)


def test_too_few_resources_are_a_message_not_a_hang(backend) -> None:
    spec = WorkerSpec(f"{HELPERS}:Slow", {}, num_cpus=64)
    began = time.monotonic()
    with pytest.raises(BackendError, match=r"wanted .*64.* available"):
        backend.start({"huge": spec}, timeout=3)
    assert time.monotonic() - began < 20


def test_an_error_raised_on_purpose_keeps_its_class(backend) -> None:
    backend.start({"w": WorkerSpec(f"{HELPERS}:Slow", {})}, timeout=60)
    with pytest.raises(DrafterFault) as caught:
        backend.wait([backend.submit("w", "fault")], timeout=30)
    assert (caught.value.drafter, caught.value.reason) == ("w", "on purpose")


def test_the_scoreboard_can_be_asked_while_the_run_goes_on(cluster: None, tmp_path: Path) -> None:
    from arena.tournament import Watcher

    seen = []
    watcher = Watcher(passed=lambda plan, play, standings: seen.append((plan.number, len(standings))))
    import arena.tournament

    arena.tournament.LOOK_EVERY, before = 0.0, arena.tournament.LOOK_EVERY
    try:
        run(tmp_path / "ray", body(backend={"kind": "ray"}), watcher)
    finally:
        arena.tournament.LOOK_EVERY = before
    assert (1, 5) in seen
    assert (4, 2) in seen


@pytest.mark.gpu
def test_gpu_shares_sum_to_at_most_one(cluster: None) -> None:
    if not ray.cluster_resources().get("GPU"):
        pytest.skip("no GPU in the cluster")
    from arena.roster import resolve, worker_specs

    experiment = config.load("story")
    specs = worker_specs(experiment, resolve(experiment), cpus=2, gpus=1, lanes=8)
    assert 0 < sum(spec.num_gpus for spec in specs.values()) <= 1


def test_a_dead_worker_is_named_though_its_arguments_are_still_being_made(backend) -> None:
    spec = WorkerSpec(f"{HELPERS}:Slow", {})
    backend.start({"busy": spec, "dead": spec}, timeout=60)
    with pytest.raises(WorkerLost, match="'dead'"):
        backend.wait([backend.submit("dead", "leave")], timeout=30)
    with pytest.raises(WorkerLost, match="'dead'"):
        backend.wait([backend.submit("dead", "echo", backend.submit("busy", "nap", 3))], timeout=30)
