"""``arena run``, ``arena validate`` and ``arena resume``."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from arena import config, lock, provenance, simulate, studies
from arena.commands.output import FORMAT, Format, plain, print_csv, print_json, printable, show_rows
from arena.config import Experiment
from arena.errors import ConfigError, RunError
from arena.places import default_path, resolve
from arena.roster import Roster, estimate
from arena.roster import resolve as resolve_roster
from arena.seals import canonical
from arena.shown import printable_lines
from arena.store import RunDirectory
from arena.studies import Study

EXPERIMENT = Annotated[
    str, typer.Argument(metavar="EXP", help="A packaged experiment (`arena ls experiments`) or a .yaml file.")
]
OVERRIDES = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[section.key=value]...", help="E.g. engine.draft_length=6 sampling.temperature=0."
    ),
]
SEED = Annotated[int | None, typer.Option(help="Replaces the experiment's seed.")]
BACKEND = Annotated[str | None, typer.Option(metavar="ray|local", help="Where workers run.")]


def run(
    experiment: EXPERIMENT,
    overrides: OVERRIDES = None,
    seed: SEED = None,
    backend: BACKEND = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run directory; must be new or empty.")
    ] = None,
    replicates: Annotated[
        int | None,
        typer.Option(min=1, help="Simulate that many seeds of it at once, exactly; table models only."),
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Check everything, show the plan, start nothing.")] = False,
    format: FORMAT = Format.table,
) -> None:
    """Launch a tournament: rounds and retirements until a champion is left.

    Standings go to stderr while it runs; the last line on stdout is the run
    directory.

    Examples:
      arena run toy

      arena run story sampling.temperature=0.7 --seed 3

      arena run mine.yaml --dry-run

      arena run toy --replicates 10000
    """
    found = _load(experiment, overrides, seed, backend)
    if replicates is not None:
        found = _replicated(found, experiment, overrides, replicates)
    if dry_run:
        _plan(found)
        return
    if isinstance(found, Experiment):
        resolve_roster(found)  # what is refused leaves no directory behind
    text = found.plan() if isinstance(found, Study) else found.to_yaml()
    path = out if out is not None else default_path(found.name, provenance.config_hash(text))
    trusted = _trusted(found) if isinstance(found, Experiment) else []
    manifest = provenance.manifest(
        experiment=found.name, config_yaml=text, seed=found.seed, trust_remote_code=trusted
    )
    _go_on(found, RunDirectory.create(path, text, manifest), format)


def validate(
    experiment: EXPERIMENT, overrides: OVERRIDES = None, seed: SEED = None, backend: BACKEND = None
) -> None:
    """Check an experiment and show its plan; the same as `arena run EXP --dry-run`."""
    _plan(_load(experiment, overrides, seed, backend))


def resume(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory, or `latest`.")] = "latest",
    format: FORMAT = Format.table,
) -> None:
    """Go on with a run that was cut short, from its stored config and its last whole round.

    Rounds are totals and nothing is played twice: a finished run is left as it is.
    """
    directory = RunDirectory.open(resolve(run))
    if directory.manifest["status"] == "complete":
        champion = (directory.champion() or {}).get("champion")
        Console(stderr=True).print(
            f"{escape(printable(directory.path))} is complete (champion: {champion}); nothing to do.",
            soft_wrap=True,
        )
        print(directory.path)
        return
    found = _build(config.parse(directory.config_yaml, "config.resolved.yaml"), "config.resolved.yaml")
    _go_on(found, directory, format)


def _trusted(experiment: Experiment) -> list[str]:
    """Workers whose models may bring code of their own; the user said so."""
    choices = {"verifier": experiment.verifier, **experiment.drafters}
    return sorted(name for name, choice in choices.items() if choice.options.get("trust_remote_code"))


def _load(
    name: str, overrides: list[str] | None, seed: int | None, backend: str | None
) -> Experiment | Study:
    extra = [f"backend.kind={backend}"] if backend else []
    return _build(config.read(name, [*(overrides or ()), *extra], seed), name)


def _build(body: dict[str, Any], where: str) -> Experiment | Study:
    return studies.build(body, where) if "study" in body else config.build(body, where)


def _replicated(
    found: Experiment | Study, experiment: str, overrides: list[str] | None, replicates: int
) -> Study:
    """The study that simulates a tournament over seeds; checked before it, so that errors name its keys."""
    if isinstance(found, Study):
        raise ConfigError("--replicates repeats a tournament, and this is a study of several; name its base.")
    simulate.check(found)
    body = {
        "name": found.name,
        "study": "simulated",
        "description": f"{replicates} seeds of {found.name}, simulated",
        "seed": found.seed,
        "base": experiment,
        "changes": list(overrides or ()),
        "replicates": replicates,
        "backend": found.backend.model_dump(mode="json"),
    }
    return studies.build(body, experiment)


def _plan(found: Experiment | Study) -> None:
    if isinstance(found, Study):
        print(found.plan())
    else:
        _show_plan(found, resolve_roster(found))


def _go_on(found: Experiment | Study, directory: RunDirectory, format: Format) -> None:
    """Plays what is left of a run, whatever it is, and records how it ended."""
    console = Console(stderr=True)
    here = escape(printable(directory.path))
    with lock.hold(directory.path):  # before anything is written: a run of somebody else stays as it is
        console.print(f"[bold]{escape(printable(found.name))}[/bold]: {escape(printable(found.description))}")
        try:
            directory.update_manifest(status="running", error=None)
            with _stoppable():
                if isinstance(found, Study):
                    _play_study(found, directory, console, format)
                else:
                    _play(found, directory, console)
        except (KeyboardInterrupt, SystemExit):
            with contextlib.suppress(OSError):  # a full disk must not hide how it ended
                directory.update_manifest(status="interrupted")
            console.print(f"interrupted; go on with: arena resume {here}", soft_wrap=True)
            raise SystemExit(130) from None
        except BaseException as error:
            with contextlib.suppress(OSError):
                directory.update_manifest(status="failed", error=f"{type(error).__name__}: {error}"[:2000])
            console.print(f"stopped; once that is mended, go on with: arena resume {here}", soft_wrap=True)
            if isinstance(error, OSError):
                raise RunError(
                    f"{str(directory.path)!r} cannot be written: {error}. What is stored is safe; "
                    "make room there, and go on with `arena resume`."
                ) from error
            raise


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Takes a polite request to end (SIGTERM, as schedulers send it) for Ctrl-C."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread: whoever runs us there handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _play_study(study: Study, directory: RunDirectory, console: Console, format: Format) -> None:
    began = time.monotonic()

    def note(text: str) -> None:
        console.print(
            f"[{time.monotonic() - began:.0f} s] {text}", style="dim", markup=False, highlight=False
        )

    result = study.play(directory.path, note)
    body = {"title": result.title, "rows": list(result.rows), "notes": list(result.notes), **result.more}
    (directory.path / "result.json").write_text(canonical(plain(body)) + "\n", encoding="utf-8")
    directory.update_manifest(status="complete")
    if format is Format.json:
        print_json(body)
    elif format is Format.csv:
        print_csv(result.columns, result.rows)
    else:
        show_rows(result.title, result.columns, result.rows)
        for text in result.notes:
            print(text)
    console.print(f"kept in {escape(printable(directory.path))}", soft_wrap=True)


def _play(experiment: Experiment, directory: RunDirectory, console: Console) -> None:
    # Imported late: `--help` and `--dry-run` need neither the engine nor Ray.
    from arena.display import Race
    from arena.replayed import make
    from arena.tournament import make_backend

    kinds = {name: choice.kind for name, choice in experiment.drafters.items()}
    verifier = str(experiment.verifier.options.get("model", experiment.verifier.kind))
    with Race(kinds, verifier, console) as race:
        backend = make_backend(experiment)
        try:
            champion = make(experiment, directory, backend, race.watcher()).run()
        finally:
            backend.shutdown()
    if champion is None:
        raise RunError(f"{directory.manifest.get('error') or 'every drafter was withdrawn'}.")
    console.print(f"\n[bold green]champion: {escape(champion.champion)}[/bold green] ({champion.how})")
    if took := directory.manifest.get("took"):
        held = f"{took['memory_mb'] / 1024:.1f} GiB at most between rounds"
        console.print(f"took {took['seconds']:.0f} s; all processes together held {held}")
    here = escape(printable(directory.path))
    console.print(f"look:    arena show {here}", soft_wrap=True)
    console.print(f"plot:    arena plot {here}", soft_wrap=True)
    console.print(f"promote: arena promote {here}", soft_wrap=True)
    print(directory.path)
    sys.stdout.flush()


def _show_plan(experiment: Experiment, roster: Roster) -> None:
    console = Console()
    console.print("[bold]resolved config[/bold]")
    print(printable_lines(experiment.to_yaml()))
    table = Table("drafter", "kind", "class", "options", "vocabulary", title="roster", title_justify="left")
    for name, seat in roster.drafters.items():
        options = ", ".join(f"{key}={value}" for key, value in seat.options.items())
        table.add_row(
            *(
                escape(printable(cell))
                for cell in (name, seat.kind, seat.target, options, seat.fingerprint or "any")
            )
        )
    console.print(table)
    bounds = estimate(experiment)
    models = [name for name, seat in {"verifier": roster.verifier, **roster.drafters}.items() if seat.neural]
    facts = f"{roster.verifier.kind} {dict(roster.verifier.options)}, {roster.verifier.fingerprint}"
    print(printable(f"verifier: {facts}"))
    print(
        f"resources: {len(roster.drafters) + 2} workers on backend {experiment.backend.kind!r}; "
        f"models loaded by: {', '.join(models) or 'none'}"
    )
    print(
        f"estimate: at most {bounds.rounds} rounds and {bounds.tokens} committed tokens; "
        f"{bounds.fewest_passes} to {bounds.most_passes} verifier passes of at most {bounds.nodes} tree nodes"
    )
