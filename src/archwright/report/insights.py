"""Why this answer: what a method found out on the way, as charts. Goes by what an answer holds, not by method names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from archwright.report.charts import Mark, scatter, signed_bars
from archwright.runs.files import Json
from archwright.runs.run import Run
from archwright.search.answer import Answer, LossRound, ScoredEnsemble

MOST_TERMS = 14
"""Of a polynomial, the strongest ones are drawn; all are in ``artifacts/polynomial.csv``."""


def insights(run: Run, answer: Answer) -> str:
    """Sentences and charts as HTML; empty where the method says nothing of itself.

    Args:
        run: whose stages are read.
        answer: of the run.
    """
    sentences = list(answer.insights)
    search = run.stage_result("search")
    weighed = search if isinstance(search, dict) and "tried" in search and "mu" in search else None
    charts = _polynomial(answer.loss_rounds) if answer.loss_rounds else ""
    if charts:
        sentences = sentences[:3]  # the chart has them all
    if weighed is not None:
        sentences.append(_weighing(weighed))
        charts += _history(weighed)
    if answer.chosen_ensemble is not None:
        sentences += _trade_off_sentences(answer.scored_ensembles, answer.chosen_ensemble)
        charts += _trade_off(answer.scored_ensembles, answer.chosen_ensemble)
    listed = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return (f"<ul>{listed}</ul>" if listed else "") + charts


# --- a loss as a polynomial of what is on (CoNAS) ---


def _polynomial(rounds: Sequence[LossRound]) -> str:
    terms = rounds[0].terms
    rows = [(" and ".join(term.bits), term.coefficient) for term in terms[:MOST_TERMS]]
    if not rows:
        return ""
    note = (
        '<p class="soft">Fourier coefficients of the supernet\'s loss, strongest first. A bar to the left: the loss is '
        f"lower with it on (of two: with both on or both off). {len(rows)} of {len(terms)} terms of the first "
        f"round{', of ' + str(len(rounds)) + ' rounds' if len(rounds) > 1 else ''}.</p>"
    )
    return f"<h3>What the loss depends on</h3>{signed_bars(rows)}{note}"


# --- how scores were weighed (HNAS) ---


def _weighing(search: Mapping[str, Json]) -> str:
    count = len(search["tried"])
    return (
        f"Bayesian optimisation tried {count} weightings of the training-free score by evaluating the network each "
        f"favours; the best came with mu = {search['mu']:.3g} and nu = {search['nu']:.3g}."
    )


def _history(search: Mapping[str, Json]) -> str:
    """Accuracy by the weight of the penalty (in the units that make both terms alike), numbered in their order."""
    known = [(n, *one) for n, one in enumerate(search["tried"], 1) if one[2] is not None]
    if len(known) < 2:
        return ""
    best = max(accuracy for *_, accuracy in known)
    marks = [
        Mark(
            log_mu,
            accuracy,
            f"evaluation {number}: {accuracy:.2f} % with a relative mu of {10**log_mu:.3g}, "
            f"nu at quantile {quantile:.2f}",
            "chosen" if accuracy == best else "point",
        )
        for number, log_mu, quantile, accuracy in known
    ]
    chart = scatter("accuracy by the weight that proposed it", marks, "relative mu (log10)", "accuracy (%)")
    return f"<h3>The history of the optimisation</h3>{chart}"


# --- good alone against different from each other (NESBS) ---


def _trade_off_sentences(scored: Sequence[ScoredEnsemble], chosen: ScoredEnsemble) -> list[str]:
    alone = (
        f"The chosen ensemble errs on {chosen.error:.1f} % of the validation images with inherited weights; its "
        f"members alone err on {chosen.ate:.1f} % on average, and two of them disagree on {chosen.ppd:.1f} %."
    )
    found = [alone]
    if chosen.delta is not None and len(scored) > 1:
        found.append(f"Of {len(scored)} ensembles, the one drawn with a repulsion of delta = {chosen.delta:g} won.")
    return found


def _trade_off(scored: Sequence[ScoredEnsemble], chosen: ScoredEnsemble) -> str:
    """Each scored ensemble by its members' mean error and their disagreement."""
    if len(scored) < 2:
        return ""
    marks = []
    for one in scored:
        drawn = f"delta {one.delta:g}: " if one.delta is not None else ""
        said = (
            f"{drawn}the ensemble errs on {one.error:.1f} %, its members on {one.ate:.1f} %, "
            f"disagree on {one.ppd:.1f} %"
        )
        marks.append(Mark(one.ppd, one.ate, said, "chosen" if one == chosen else "point"))
    chart = scatter(
        "members' error against their disagreement", marks, "two members disagree (%)", "mean error of a member (%)"
    )
    note = '<p class="soft">Lower is better alone, further right is more different; the ensemble gains by both.</p>'
    return f"<h3>Good alone or different from each other</h3>{chart}{note}"
