"""Ask and tell: a method proposes, the caller evaluates however and wherever it likes.

    study = Study("evolution", space="nasbench201", run="my-study")
    architecture = study.ask()
    study.tell(architecture, score)

A study is a run: every question and every answer is in its folder before the call returns, and opening the folder again
goes on with the same proposals, the unanswered ones first.
"""

from __future__ import annotations

from contextlib import ExitStack
from math import inf, isfinite
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from archwright.errors import InputError
from archwright.runs.files import JsonLines
from archwright.runs.progress import Progress
from archwright.runs.run import Run, new_folder, runs_root
from archwright.runs.stop import Stop
from archwright.search.asked import asked_for
from archwright.search.configuration import ASK_AND_TELL
from archwright.search.context import Context
from archwright.search.engine import compute_device
from archwright.search.evaluator import Evaluated
from archwright.search.proposals import ProposalSearch
from archwright.search.registry import methods
from archwright.spaces.base import Architecture, Space


class Study:
    """A propose-evaluate method whose evaluations are the caller's.

    Args:
        method: name of a method that proposes architectures: random, evolution, hnas, or one of yours.
        space: name, text or object.
        run: folder; a new one in the runs root by default. A folder that holds this very study is continued.
        options: of the method, and settings such as ``seed`` and ``limits``.

    Example:
        >>> study = Study("random", space='choices:{"x": [0, 1, 2]}')  # doctest: +SKIP
        >>> for _ in range(3):  # doctest: +SKIP
        ...     architecture = study.ask()
        ...     study.tell(architecture, -architecture["x"])
        >>> str(study.best.architecture)  # doctest: +SKIP
        '{"x": 0}'
    """

    def __init__(
        self, method: str, space: str | Space[Any] | None = None, *, run: Path | str | None = None, **options: Any
    ) -> None:
        chosen = methods.get(method)
        if not issubclass(chosen, ProposalSearch):
            raise InputError("a method that proposes architectures (random, evolution, hnas)", repr(method))
        settings = {**options, "space": space or chosen.default_space, "evaluate": ASK_AND_TELL}
        configuration = asked_for(method, settings, "settings of a study")
        device = compute_device(configuration)
        context = Context(configuration, Run(Path(run or runs_root() / "new"), {}), device, Stop(), Progress())
        self.method: ProposalSearch = chosen(context)
        self.method.check()
        folder = Path(run) if run is not None else new_folder("study", method, context.task.space.name)
        kept = configuration.model_dump(mode="json")
        known = (folder / "run.json").is_file()
        context.run = Run.open(folder) if known else Run.create(folder, kept, device.describe())
        context.task.home = folder
        if known:
            _check_same(context.run, kept)
        self._held = ExitStack()
        self._held.enter_context(context.run.locked())
        self._log = JsonLines(folder / "items" / "study.jsonl")
        self.history: list[Evaluated] = []
        """What was told, in that order; minus infinity for what failed."""
        self._waiting: list[Architecture] = []
        self._asked = 0
        self._replay()
        self._again = list(self._waiting)

    @property
    def folder(self) -> Path:
        """The folder of its run."""
        return self.method.context.run.folder

    def _replay(self) -> None:
        """Let the method propose again what it proposed before, from the same past."""
        for record in list(self._log):
            architecture: Architecture = self.method.context.task.space.parse(record["architecture"])
            if "score" in record:
                self._learn(architecture, record["score"])
            else:
                self.method.propose(self.history, self._asked)
                self._waiting.append(architecture)
                self._asked += 1

    def _learn(self, architecture: Architecture, score: float | None) -> None:
        self._waiting.remove(architecture)
        self.history.append(Evaluated(architecture, -inf if score is None else score))

    def ask(self) -> Architecture:
        """The next architecture to evaluate; what was asked before the study was opened again comes first."""
        while self._again:
            architecture = self._again.pop(0)
            if architecture in self._waiting:
                return architecture
        architecture = self.method.propose(self.history, self._asked)
        self._log.append({"architecture": str(architecture)})
        self._waiting.append(architecture)
        self._asked += 1
        return architecture

    def tell(self, architecture: Architecture, score: float | None, why: str = "") -> None:
        """Say how good an architecture that was asked is; higher is better, None or NaN means that it failed.

        Args:
            architecture: from :meth:`ask`; several may be out at once, and come back in any order.
            score: what you measured.
            why: the reason of a failure, kept in the folder.
        """
        if architecture not in self._waiting:
            raise InputError("an architecture that was asked and not yet told", str(architecture))
        try:
            value = None if score is None or not isfinite(float(score)) else float(score)
        except (TypeError, ValueError) as error:
            raise InputError("a number as score, or None for a failure", repr(score)) from error
        self._log.append({"architecture": str(architecture), "score": value, "why": why})
        self._learn(architecture, value)

    @property
    def best(self) -> Evaluated:
        """The best that was told so far."""
        if not any(one.accuracy > -inf for one in self.history):
            raise InputError("a study that was told a score", "none so far")
        return max(self.history, key=lambda one: one.accuracy)

    def close(self) -> None:
        """Let go of the folder, so that it can be opened elsewhere; the end of the process does the same."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_same(run: Run, asked: dict[str, Any]) -> None:
    """Refuse to go on with another study than the folder holds."""
    different = [name for name, value in asked.items() if run.configuration.get(name) != value]
    if different:
        found = ", ".join(f"{name} {run.configuration.get(name)}" for name in different)
        raise InputError(
            f"the study that {run.folder} holds ({found})", ", ".join(f"{n} {asked[n]}" for n in different)
        )
