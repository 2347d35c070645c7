"""Your own function and your own space in one script: python examples/own_objective.py

The space is every combination of three choices; the function says how good one is, here the accuracy of a small
scikit-learn network on handwritten digits. Stopped at any moment, the script goes on where it was.
"""

from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.neural_network import MLPClassifier

import archwright as aw

SPACE = aw.ChoiceSpace({"layers": [1, 2], "width": [4, 8, 16, 32], "activation": ["relu", "tanh", "identity"]})
IMAGES, LABELS = load_digits(return_X_y=True)


def accuracy(architecture) -> float:
    """Percent, by cross-validation on some of the images."""
    layers = (architecture["width"],) * architecture["layers"]
    network = MLPClassifier(layers, activation=architecture["activation"], max_iter=15, random_state=0)
    return 100 * cross_val_score(network, IMAGES[:300] / 16, LABELS[:300], cv=2).mean()


def main(run: Path = Path("runs/own-objective"), evaluations: int = 15) -> aw.Answer:
    """Search, or go on."""
    if (run / "run.json").exists():
        return aw.resume(run, evaluate=accuracy)
    options = {"evaluations": evaluations, "population": 5, "sample": 3}
    return aw.search("evolution", space=SPACE, evaluate=accuracy, run=run, **options)


if __name__ == "__main__":
    found = main()
    print(found.best.architecture, f"{found.best.accuracy:.1f} % after {found.evaluations} evaluations")
