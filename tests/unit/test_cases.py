"""Inputs that broke other decoders, and every row of "bad input": which test holds each of them.

Where a test exists elsewhere it is named, not repeated; a test below checks that it is there.

Cases (seen in public against systems that people use):

| # | what | held by |
|---|---|---|
| 1 | an end token among the accepted, not last | here::test_1_nothing_follows_an_end_token |
| 2 | the whole draft accepted with one token of budget left | here::test_2_exactly_the_budget_is_committed |
| 3 | a stop string completed inside a block | not offered: here::test_3_stop_strings_are_not_offered |
| 4 | the law sent is not the law sampled | unit/test_contract.py::test_liars_are_convicted |
| 5 | target at temperature T, ratio at 1 | here::test_5_one_warped_law_everywhere |
| 6 | temperature 0, 1e-6, negative, NaN | here::test_6_temperatures |
| 7 | a row of NaN from the verifier or a drafter | unit/test_tournament.py::test_a_verifier_without_finite_logits_stops_the_run, \
unit/test_chaos.py::test_garbage_is_withdrawn_and_was_never_there |
| 8 | uniforms stuck at 0 | statistical/test_live_text.py::test_uniforms_stuck_at_zero_are_convicted |
| 9 | all kept, then the bonus token | here::test_9_and_10_the_verifiers_own_law_is_always_kept, \
model/test_neural_drafters.py::test_a_drafter_equal_to_the_verifier_keeps_acceptance_one |
| 10 | drafter = verifier, seeded | here::test_9_and_10_the_verifiers_own_law_is_always_kept |
| 11 | longer than a sliding window | model/test_load.py::test_models_without_plain_attention_are_refused |
| 12 | a lane alone and among others | unit/test_tournament.py::test_lanes_and_groups_change_nothing, \
model/test_lanes.py::test_a_lane_does_not_depend_on_the_others |
| 13 | two tokenizers; two paddings of one | unit/test_tournament.py::test_two_vocabularies_are_refused_before_anything_is_built, \
model/test_neural_drafters.py::test_padded_vocabularies_are_cut_to_the_tokenizers |
| 14, 15 | block with the wrong residual; siblings with the old one | exact/test_audit.py::test_broken_rules_are_convicted |
| 16 | greedy in low precision | model/test_greedy_text.py::test_two_hundred_greedy_tokens_equal_generate |
| 17 | a rate above 1 | unit/test_metrics.py::test_rates_out_of_range_are_refused, \
unit/test_metrics.py::test_an_acceptance_length_beyond_k_plus_one_is_refused |
| 18 | mean of means | unit/test_metrics.py::test_counts_are_pooled_not_averaged |
| 19 | a prompt that raises | here::test_19_a_prompt_that_raises_is_named_and_in_no_average |
| 20 | prompt empty, shorter than the n-gram, as long as the context | here::test_20_prompts_at_the_edges |
| 21 | prompts in another order, other workers | here::test_21_the_order_of_prompts_is_nothing, \
backend_ray/test_ray.py::test_files_equal_the_local_backend_with_everything_shuffled |
| 22 | resume of a finished or half-finished run | unit/test_tournament.py::test_a_finished_run_is_not_played_again, \
unit/test_tournament.py::test_a_run_cut_short_goes_on_as_if_it_had_not_been |

Bad input:

| what | held by |
|---|---|
| unknown key, kind, rule, experiment | cli/test_cli.py::test_mistakes_exit_with_2_and_say_what_is_known |
| other vocabularies | as case 13 |
| prompts empty, over-long, not UTF-8, malformed | unit/test_prompts.py::test_bad_line, here::test_20_prompts_at_the_edges |
| NaN, bad tokens, bad laws | unit/test_validation.py::test_unusable_drafts_are_refused_by_their_reason, as case 7 |
| hangs, dies, leaks | unit/test_chaos.py::test_one_fault_leaves_no_trace, backend_ray/test_faults.py::test_a_leak_is_rebuilt_once_and_then_withdrawn |
| lies about its law | as case 4 |
| disk full, kill -9, power cut | here::test_a_full_disk_is_told_with_the_next_step, unit/test_resume.py::test_kill_9_at_random_moments_changes_no_byte, \
unit/test_resume.py::test_a_power_cut_at_any_write_changes_no_byte |
| model files | model/test_load.py::test_pickles_are_not_loaded, here::test_no_pickle_is_loaded_and_trust_is_recorded |
| a cluster loses a node | backend_ray/test_cluster.py::test_a_node_is_lost_in_the_middle_of_a_run |
| names that leave results/ | here::test_names_cannot_leave_their_folder |
| markup, ANSI, right-to-left | here::test_what_a_drafter_says_cannot_steer_the_terminal |
"""  # noqa: E501 (rows of a table)

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from arena import config, durable
from arena.check import check
from arena.cli import app
from arena.commands import play
from arena.engines.seats import VerifierSeat
from arena.errors import ConfigError, PromptError, RunError
from arena.shown import printable
from arena.store import RunDirectory

from ..runs import TABLE, body, files, run

ROOT = Path(__file__).parents[1]
HOSTILE = "\x1b[31m[bold]red[/bold]\x07\u202egnol\u2066\x00\x9b2J"


def test_every_test_that_is_named_above_is_there() -> None:
    named = re.findall(r"(here|[\w/]+\.py)::(test_\w+)", __doc__ or "")
    assert len(named) > 30
    for place, name in named:
        path = Path(__file__) if place == "here" else ROOT / place
        assert f"def {name}(" in path.read_text(), f"{place}::{name}"


def record(path: Path) -> list[dict[str, Any]]:
    return RunDirectory.open(path).rounds()


def commits(path: Path, number: int = 1) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in RunDirectory.open(path).read_table("commits", number).to_pylist():
        found.setdefault(row["prompt_id"], []).append(row)
    return found


TWIN = {**TABLE, "mix": 0.0}
"""The verifier's own law."""


def twin(**changes: Any) -> dict[str, Any]:
    return body(drafters={"twin": TWIN}, rounds={"prompts": 12, "max_new_tokens": 30, "max": 1}, **changes)


def test_1_nothing_follows_an_end_token(tmp_path: Path) -> None:
    # A drafter equal to the verifier proposes end tokens inside its drafts, and they are accepted there.
    run(tmp_path / "run", twin(engine={"draft_length": 6}))
    inside = 0
    for steps in commits(tmp_path / "run").values():
        text = [token for row in steps for token in row["tokens"]]
        assert 0 not in text[:-1]
        assert (steps[-1]["finish"] == "stop") == (text[-1] == 0)
        inside += (
            steps[-1]["finish"] == "stop" and 0 < steps[-1]["n_accepted"] == len(steps[-1]["tokens"]) < 6
        )
    assert inside > 0
    counts = record(tmp_path / "run")[0]["counts"]["twin"]
    assert (
        counts["offered"] == counts["drafted"] == counts["accepted"]
    )  # what lay behind it was never asked for
    plain = twin(engine={"draft_length": 1})
    run(tmp_path / "plain", plain)
    ended = sum(steps[-1]["finish"] == "stop" for steps in commits(tmp_path / "plain").values())
    assert ended > 0


@pytest.mark.parametrize("budget", [2, 3, 5, 6, 7])
def test_2_exactly_the_budget_is_committed(tmp_path: Path, budget: int) -> None:
    values = twin(engine={"draft_length": 5})
    values["rounds"]["max_new_tokens"], values["verifier"] = budget, TABLE  # no end token
    run(tmp_path / "run", values)
    for steps in commits(tmp_path / "run").values():
        assert sum(len(row["tokens"]) for row in steps) == budget
        assert steps[-1]["finish"] == "length"
    for row in RunDirectory.open(tmp_path / "run").read_table("steps", 1).to_pylist():
        assert row["n_offered"] == min(5, budget - row["start"] - 1)


def test_3_stop_strings_are_not_offered() -> None:
    # Rules judge tokens. A stop string is a property of text: each drafter's chain would have to be
    # decoded in every pass to know where its offer ended. End tokens end a text here; a trace whose
    # engine had stop strings is read as such (unit/test_traces.py).
    with pytest.raises(ConfigError, match=r"unknown key 'stop'"):
        config.build(body(rounds={"stop": ["###"]}), "test")


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.6},
        {"temperature": 1.7},
        {"top_k": 3},
        {"top_p": 0.6},
        {"temperature": 0.8, "top_k": 5},
    ],
)
def test_5_one_warped_law_everywhere(tmp_path: Path, sampling: dict[str, Any]) -> None:
    run(tmp_path / "run", twin(sampling=sampling))
    counts = record(tmp_path / "run")[0]["counts"]["twin"]
    assert counts["accepted"] == counts["drafted"] > 50  # one unwarped factor anywhere, and some are refused


def test_6_temperatures(tmp_path: Path) -> None:
    found = []
    for index, temperature in enumerate((0, 0.0, 1e-6)):
        run(tmp_path / str(index), twin(sampling={"temperature": temperature}))
        found.append(files(tmp_path / str(index)))
        counts = record(tmp_path / str(index))[0]["counts"]["twin"]
        assert counts["accepted"] == counts["drafted"] > 50
    assert found[0] == found[1] == found[2]
    for refused in (-1, -1e-9, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="temperature"):
            config.build(body(sampling={"temperature": refused}), "test")


@pytest.mark.parametrize(
    "rules", [{"score": "speculative", "commit": "recursive"}, {"score": "block", "commit": "traversal"}]
)
def test_9_and_10_the_verifiers_own_law_is_always_kept(tmp_path: Path, rules: dict[str, str]) -> None:
    values = twin(rules=rules)
    values["rounds"]["max_new_tokens"], values["verifier"] = 200, TABLE
    values["rounds"]["prompts"] = 2
    run(tmp_path / "run", values)
    counts = record(tmp_path / "run")[0]["counts"]["twin"]
    assert counts["accepted"] == counts["offered"] > 200


def test_19_a_prompt_that_raises_is_named_and_in_no_average(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [{"prompt": f"text {i}"} for i in range(8)] + [{"prompt": "cursed"}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    whole = VerifierSeat._encode

    def picky(self: VerifierSeat, messages: Any, text: str) -> Any:
        if "cursed" in str(messages):
            self.verifier = _Cursed(self.verifier)
        try:
            return whole(self, messages, text)
        finally:
            self.verifier = getattr(self.verifier, "inner", self.verifier)

    monkeypatch.setattr(VerifierSeat, "_encode", picky)
    prompts = {"path": str(tmp_path / "p.jsonl"), "synthetic": None}
    with pytest.raises(PromptError, match=r"line 9: it cannot be turned into tokens: ValueError: roles"):
        run(tmp_path / "refused", body(prompts=prompts))
    values = body(prompts={**prompts, "on_error": "skip"})
    run(tmp_path / "run", values)
    skipped = json.loads((tmp_path / "run" / "manifest.json").read_text())["prompts"]
    assert skipped["usable"] == 8
    assert "line 9" in skipped["skipped"][0]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines[:8])))
    run(tmp_path / "without", values)
    assert files(tmp_path / "run") == files(tmp_path / "without")


class _Cursed:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def encode(self, messages: Any, text: str) -> list[int]:
        raise ValueError("roles must alternate")


def test_20_prompts_at_the_edges(tmp_path: Path) -> None:
    # One token, shorter than any n-gram: no match, an empty draft, one target token a pass.
    (tmp_path / "p.jsonl").write_text('{"tokens": [3]}\n{"tokens": [4]}\n')
    values = body(
        drafters={"copy": {"kind": "copyist", "min_ngram": 3}},
        prompts={"path": str(tmp_path / "p.jsonl"), "synthetic": None},
        rounds={"prompts": 2, "max_new_tokens": 4},
        verifier={**TABLE, "eos": None},
    )
    run(tmp_path / "run", values)
    rows = RunDirectory.open(tmp_path / "run").read_table("steps", 1).to_pylist()
    assert [row["n_drafted"] for row in rows if row["start"] == 0] == [0, 0]
    assert all(len(steps) == 4 for steps in commits(tmp_path / "run").values())
    # As long as the context, and longer: named and refused; skipped and counted if so asked.
    (tmp_path / "p.jsonl").write_text('{"tokens": [3]}\n{"tokens": [4, 4, 4, 4, 4, 4]}\n{"tokens": []}\n')
    short = {**values, "verifier": {**TABLE, "max_context": 6}}
    short["rounds"] = {"prompts": 1, "max_new_tokens": 4}
    with pytest.raises(PromptError, match="line 3"):
        run(tmp_path / "empty", short)
    (tmp_path / "p.jsonl").write_text('{"tokens": [3]}\n{"tokens": [4, 4, 4, 4, 4, 4]}\n')
    with pytest.raises(
        PromptError, match=r"line 2: the prompt has 6 tokens; the context holds 6.*on_error=skip"
    ):
        run(tmp_path / "long", short)
    short["prompts"] = {**short["prompts"], "on_error": "skip"}
    run(tmp_path / "skipped", short)
    facts = json.loads((tmp_path / "skipped" / "manifest.json").read_text())["prompts"]
    assert (facts["usable"], len(facts["skipped"])) == (1, 1)


def test_21_the_order_of_prompts_is_nothing(tmp_path: Path) -> None:
    lines = [json.dumps({"tokens": [1 + i % 11, 2, 3 + i % 7]}) for i in range(20)]
    found = []
    for index, order in enumerate((lines, lines[::-1], sorted(lines))):
        (tmp_path / "p.jsonl").write_text("\n".join(order))
        prompts = {"path": str(tmp_path / "p.jsonl"), "synthetic": None}
        run(tmp_path / str(index), body(prompts=prompts, engine={"lanes": 1 + index}))
        found.append(files(tmp_path / str(index)))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("at", [1, 5, 9, 17, 30])
def test_a_full_disk_is_told_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    calls, real = iter(range(10_000)), os.fsync

    def full(handle: int) -> None:
        if next(calls) >= at:
            raise OSError(28, "No space left on device")
        real(handle)

    quick = ["--backend", "local", "rounds.prompts=3", "rounds.max_new_tokens=6", "engine.calibrate=false"]
    path = tmp_path / "run"
    monkeypatch.setattr(durable.os, "fsync", full)
    result = CliRunner().invoke(app, ["run", "toy", "--out", str(path), *quick])
    monkeypatch.undo()
    assert isinstance(result.exception, RunError | ConfigError), result.exception
    assert "No space left" in str(result.exception)
    if (path / "manifest.json").exists():
        assert CliRunner().invoke(app, ["resume", str(path)]).exit_code == 0
        assert not check(path).problems


@pytest.mark.parametrize(
    "name",
    [
        "../up",
        "/etc/passwd",
        "a/b",
        "..",
        ".",
        "",
        "a\0b",
        "x" * 4096,
        "🐍",
        "a b",
        "\u202eevil",
        "-rf",
        "con:",
    ],
)
def test_names_cannot_leave_their_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError):
        config.build(body(name=name), "test")
    with pytest.raises(ConfigError):
        config.build(body(drafters={name: {"kind": "copyist"}}), "test")
    for command in ("show", "resume", "check"):
        result = CliRunner().invoke(app, [command, "--", name])
        assert isinstance(result.exception, RunError | ConfigError | SystemExit), result.exception
        assert result.exit_code != 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_drafter_says_cannot_steer_the_terminal(tmp_path: Path) -> None:
    shown = printable(HOSTILE)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    assert "[bold]red[/bold]" in shown
    (tmp_path / "loud.py").write_text(
        "from drafters.copyist import Copyist\n"
        "class Loud(Copyist):\n"
        f"    def propose(self, request):\n        raise RuntimeError({HOSTILE!r})\n"
    )
    values = body(drafters={"loud": {"kind": f"{tmp_path}/loud.py:Loud"}, "copy": {"kind": "copyist"}})
    values |= {
        "description": HOSTILE.replace("\0", "").replace("\x1b", "").replace("\x9b", "").replace("\x07", "")
    }
    (tmp_path / "e.yaml").write_text(yaml.safe_dump(values))
    path = str(tmp_path / "run")
    for words in (["run", str(tmp_path / "e.yaml"), "--out", path], ["show", path], ["check", path]):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        for text in (result.stdout, result.stderr):
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text), words
    assert "withdrawn" in CliRunner().invoke(app, ["show", path]).stdout


def test_no_pickle_is_loaded_and_trust_is_recorded() -> None:
    for path in [*Path(config.__file__).parent.rglob("*.py"), *(ROOT.parent / "drafters").rglob("*.py")]:
        text = path.read_text()
        assert not re.search(r"pickle\.load\(|allow_pickle=True|weights_only=False|torch\.load\(", text), path
    trusting = config.build(
        body(verifier={**TABLE, "trust_remote_code": True}, drafters={"copy": {"kind": "copyist"}}), "test"
    )
    assert play._trusted(trusting) == ["verifier"]
    assert play._trusted(config.build(body(), "test")) == []


def test_the_cluster_example_can_be_read() -> None:
    folder = ROOT.parent / "experiments" / "cluster"
    result = CliRunner().invoke(app, ["validate", str(folder / "tournament.yaml")])
    assert result.exit_code == 0, result.output
    job = yaml.safe_load((folder / "rayjob.yaml").read_text())
    assert (job["kind"], job["apiVersion"]) == ("RayJob", "ray.io/v1")
    words = job["spec"]["entrypoint"].split()
    assert words[:2] == ["arena", "run"]
    assert Path(words[2]).name == "tournament.yaml"
    groups = [
        job["spec"]["rayClusterSpec"]["headGroupSpec"],
        *job["spec"]["rayClusterSpec"]["workerGroupSpecs"],
    ]
    cpus = sum(
        int(c["resources"]["limits"]["cpu"]) * group.get("replicas", 1)
        for group in groups
        for c in group["template"]["spec"]["containers"]
    )
    experiment = config.load(str(folder / "tournament.yaml"))
    wanted = (len(experiment.drafters) + 2) * (experiment.backend.worker_cpus or 1)
    assert wanted <= cpus - 2  # what is left after one worker node is lost holds them all
