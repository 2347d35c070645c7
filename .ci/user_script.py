"""What a user writes, for a type checker that sees the installed wheel only: `mypy --strict .ci/user_script.py`."""

import archwright as aw


def score(architecture: aw.Architecture) -> float:
    """Longer texts are better."""
    return float(len(str(architecture)))


space = aw.ChoiceSpace({"depth": [2, 3], "width": aw.Integer(8, 64)})
found: aw.Answer = aw.search("evolution", space=space, evaluate=score, evaluations=4)
accuracy: float | None = found.best.accuracy
front: list[aw.Candidate] = found.front
model = aw.ArchwrightClassifier("random", minutes=1.0)
