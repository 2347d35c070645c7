"""The answer of thinning: the given network, a network for every share or limit, the front, and what it is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from archwright.costs.backends import find_backend
from archwright.costs.clock import middle_round, stopwatch
from archwright.costs.measure import device_name
from archwright.methods.width_subject import (
    GivenResult,
    RemoveResult,
    Subject,
    Thinned,
    TimeResult,
    TunedNetworks,
)
from archwright.runs.files import Json, write_atomic
from archwright.search.answer import Beside, Candidate, Found, Spread
from archwright.search.beside import verdict
from archwright.search.trained import INT8, TrainedNetwork, networks_of

UNPRUNED = "unpruned"
"""What the network with all its channels is called beside the answer, fine-tuned alike."""
SMALLER_BETTER = 1.0
"""Points on validation from which on a smaller size is called the better answer."""


@dataclass
class Telling:
    """Makes the answer of what the stages kept.

    Attributes:
        subject: what was thinned.
        simple: what simple things reach on the same images.
    """

    subject: Subject
    simple: Mapping[str, Beside]

    def found(self) -> Found:
        """The given network, a model for every share or limit, the front, and what simple things do."""
        removed, tuned = self.subject.result("remove", RemoveResult).chosen, self.subject.result("train", TunedNetworks)
        smaller = tuned.smaller or [None] * len(removed)
        models = [self._model(*one, tuned) for one in zip(removed, tuned.chosen, smaller, strict=True)]
        best = max(models, key=lambda one: (one.validation_accuracy or 0.0, -(one.latency_ms or one.macs or 0.0)))
        self._copy_best(best)
        before = self._before()
        beside = self._beside(tuned)
        sentences = [*self._sentences(before, models), *self._left_sentences()]
        details: dict[str, Json] = {
            "scores": self.subject.score_name,
            "from_scratch": not self.subject.has_weights,
            "step": self._step(),
            "left_whole": self.subject.left_whole,
            "certificate": "exact: no other widths are worth more at the cost of these, as costs add up around them",
        }
        return Found(
            best=best,
            models=models,
            before=before,
            front=front_of([*models, before]) if self.subject.has_weights else front_of(models),
            beside=beside,
            evaluations=0,
            verdict=self._verdict(models, tuned) or verdict(best, self.simple) or None,
            insights=sentences,
            latency_on=device_name(self.subject.timing.processor) if self.subject.timing else None,
            details=details,
        )

    def _step(self) -> int:
        timed = self.subject.result("time", TimeResult).times.step if self.subject.options.timing else 1
        return self.subject.options.step or timed

    def _before(self) -> Candidate:
        """The network with all its channels: as it came, or what is counted of it."""
        counted = self.subject.whole_costs
        known: dict[str, Any] = {"params": int(counted["params"]), "macs": int(counted["macs"])}
        details: dict[str, Any] = {"channels": int(counted["channels"])}
        if self.subject.options.timing:
            whole = self.subject.result("time", TimeResult).whole
            known |= {"latency_ms": whole.median_ms, "measured_latency_ms": whole}
        if self.subject.has_weights:
            given = self.subject.result("given", GivenResult)
            known |= given.trained.model_dump()
            details |= {"preprocessing": given.preprocessing, "chance": given.chance}
        return Candidate(
            architecture=str(self.subject.space.full),
            scale=self.subject.space.scale.to_dict(),
            details=details,
            **known,
        )

    def _model(self, one: Thinned, name: str, smaller: tuple[int, str] | None, tuned: TunedNetworks) -> Candidate:
        """All that is known of the answer to one share or limit.

        Args:
            one: its widths.
            name: of its network among the tuned ones.
            smaller: the size at which the whole network is as quick, and its name.
            tuned: what was tuned.
        """
        timed = one.latency
        details: dict[str, Any] = {
            "asked": one.asked,
            "channels": int(one.costs["channels"]),
            "worth": one.value,
            "gap": one.gap,
            "steps": networks_of(self.subject.context.run)[name].steps,
            "quicker_than_predicted": one.steps,
        }
        if smaller is not None:
            details["as_quick_at"] = smaller[0]
        twin = self.subject.context.run.items(INT8).done.get(name) if self.subject.int8 else None
        if twin:
            details["int8"] = self._int8(TrainedNetwork.model_validate(twin), name)
        return Candidate(
            **tuned.kept[name].model_dump(),
            architecture=one.architecture,
            limits=one.limits or None,
            params=int(one.costs["params"]),
            macs=int(one.costs["macs"]),
            latency_ms=timed.median_ms if timed else None,
            predicted_latency_ms=one.costs.get("latency_ms"),
            measured_latency_ms=Spread(**timed.model_dump(include=set(Spread.model_fields))) if timed else None,
            scale=self.subject.space.scale.to_dict(),
            details=details,
        )

    def _int8(self, twin: TrainedNetwork, name: str) -> dict[str, Json]:
        """The int8 file of an answer: its accuracy on validation, latency and place."""
        file = self.subject.trainer.int8_file(name)
        found: dict[str, Json] = {
            "validation_accuracy": twin.validation_accuracy,
            "onnx": f"artifacts/networks/{file.name}",
        }
        if self.subject.timing is not None and "int8" in find_backend(self.subject.timing.backend).precisions:
            log = self.subject.context.run.items("timed")
            if f"{name} int8" not in log.done:
                watch = stopwatch(file.read_bytes(), self.subject.space.scale, self.subject.timing)
                log.record(f"{name} int8", asdict(middle_round(watch)))
            found["latency_ms"] = log.done[f"{name} int8"]["median_ms"]
        return found

    def _copy_best(self, best: Candidate) -> None:
        """The files of the best answer under the name ``best``."""
        run = self.subject.context.run
        for suffix in (".safetensors", ".json", ".onnx"):
            source = (run.folder / (best.model or "")).with_suffix(suffix)
            if source.exists():
                write_atomic(run.artifact(f"best{suffix}"), source.read_bytes())

    def _beside(self, tuned: TunedNetworks) -> dict[str, Beside]:
        """Simple things, the whole network fine-tuned alike, and that with smaller images."""
        found = dict(self.simple)
        wholes = {UNPRUNED: (self.subject.space.scale.image_size, tuned.whole)} if tuned.whole else {}
        wholes |= {f"whole at {one[0]} px": one for one in tuned.smaller if one is not None}
        for label, (size, name) in wholes.items():
            assert name is not None
            kept = tuned.kept[name].model_dump(exclude={"onnx", "epochs"})
            timed = (
                self.subject.clock.timed((self.subject.space.full, size)).median_ms
                if self.subject.options.timing
                else None
            )
            space = self.subject.space.at_scale(self.subject.space.scale.changed(image_size=size))
            cost = space.cost(space.full, space.scale)
            found[label] = Beside(**kept, latency_ms=timed, params=cost.params, macs=cost.macs, image_size=size)
        return found

    def _sentences(self, before: Candidate, models: Sequence[Candidate]) -> list[str]:
        """Every answer beside the given network."""
        found = []
        for one in models:
            asked = ", ".join(f"{name} {value:g}" for name, value in (one.details or {})["asked"].items()) or "learned"
            parts = [f"{_change('macs', before.macs, one.macs)}, {_change('params', before.params, one.params)}"]
            if one.latency_ms is not None:
                parts.append(_change("latency_ms", before.latency_ms, one.latency_ms))
            accuracy = f"{one.accuracy:.2f} % on test"
            if before.accuracy is not None:
                accuracy = f"accuracy on test {before.accuracy:.2f} -> {one.accuracy:.2f} %"
            found.append(f"{asked}: {'; '.join(parts)}; {accuracy}.")
        return found

    def _left_sentences(self) -> list[str]:
        shown = list(self.subject.left_whole.items())[:5]
        return [f"{name} stays whole: {why}." for name, why in shown]

    def _verdict(self, models: Sequence[Candidate], tuned: TunedNetworks) -> str | None:
        """Where a smaller size is the better way to be as quick, that is said."""
        worse = []
        for one, other in zip(models, tuned.smaller or [None] * len(models), strict=True):
            if other is None or one.validation_accuracy is None:
                continue
            size, name = other
            whole = tuned.kept[name].validation_accuracy
            if whole >= one.validation_accuracy + SMALLER_BETTER:
                worse.append(
                    f"the whole network with images of {size} px, which is as quick, has {whole:.1f} % on validation "
                    f"where this one has {one.validation_accuracy:.1f} % ({one.latency_ms:.3g} ms)"
                )
        if not worse:
            return None
        return (
            f"Warning: {'; '.join(worse)}. A smaller size is the better answer there: --image-size, or a search over "
            "sizes: archwright search binas --pretrained NAME."
        )


def front_of(networks: Sequence[Candidate]) -> list[Candidate]:
    """Those that none is quicker (or has fewer operations) and more accurate than on validation; a given one always.

    Args:
        networks: with what is known of them; one without limits is the given network.
    """

    def cost(one: Candidate) -> float:
        return float(one.latency_ms if one.latency_ms is not None else one.macs or 0)

    found, best = list[Candidate](), -1.0
    for one in sorted(networks, key=lambda one: (cost(one), -(one.validation_accuracy or 0.0))):
        accuracy = one.validation_accuracy or 0.0
        if accuracy > best or one.limits is None:
            best = max(best, accuracy)
            known = one.model_dump(include={"architecture", "validation_accuracy", "latency_ms", "macs", "params"})
            found.append(Candidate(**known))
    return found


def _change(name: str, before: float | None, after: float | None) -> str:
    """``macs 40,813,184 -> 20,000,000 (-51.0 %)``."""
    assert before is not None
    assert after is not None
    digits = "" if float(before).is_integer() else ".3f"
    return f"{name} {before:,{digits}} -> {after:,{digits}} ({100 * (after / before - 1):+.1f} %)"
