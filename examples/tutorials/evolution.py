"""Evolution: your own function, any space: python examples/tutorials/evolution.py

You say what may vary and how good one choice is. Regularised evolution proposes; random search is the baseline.
"""

# %%
import archwright as aw

space = aw.ChoiceSpace({"width": [8, 16, 32, 64], "depth": [1, 2, 3, 4], "kernel": [3, 5, 7], "skip": [False, True]})

# %% [markdown]
# Here a formula stands for a training. Higher is better.


# %%
def score(one):
    """What a training would tell."""
    return one["width"] * one["depth"] ** 0.5 - one["kernel"] ** 2 + 10 * one["skip"]


# %%
for method in ("random", "evolution"):
    tried = aw.search(method, space=space, evaluate=score, evaluations=40)
    print(f"{method}: {tried.best.accuracy:.1f} by {tried.best.architecture}")

# %% [markdown]
# A study asks and tells instead, where your own program runs the loop.

# %%
study = aw.Study("evolution", space=space)
for _ in range(5):
    one = study.ask()
    study.tell(one, score(one))
print("asked and told:", study.best.architecture)
