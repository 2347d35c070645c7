"""Your own loop: the study proposes, you evaluate: python examples/ask_and_tell.py

Every question and answer is in a folder before the call returns: a killed program goes on where it was.
"""

# %% [markdown]
# A space of named choices, and a function of yours that says how good one is. Here it is a formula that is quick to
# compute; it may train a network on another machine for a day.

# %%
import archwright as aw

SPACE = aw.ChoiceSpace({"depth": range(1, 9), "width": [16, 24, 32, 48, 64], "kernel": [3, 5, 7]})


def quality(architecture) -> float:
    """Higher is better; the best is depth 6, width 48, kernel 5."""
    return 90 - (architecture["depth"] - 6) ** 2 - abs(architecture["width"] - 48) / 8 - abs(architecture["kernel"] - 5)


# %% [markdown]
# Regularised evolution asks. Answers may come in any order; `None` says that an evaluation failed.

# %%
study = aw.Study("evolution", SPACE, run="my-study", population=8, sample=4, seed=0)
waiting = [study.ask() for _ in range(4)]  # four workers at once
for _ in range(36):
    architecture = waiting.pop(0)
    study.tell(architecture, quality(architecture))
    waiting.append(study.ask())
print(study.best.architecture, study.best.accuracy)
study.close()

# %% [markdown]
# The same folder, opened again: what was asked and not answered is asked first.

# %%
study = aw.Study("evolution", SPACE, run="my-study", population=8, sample=4, seed=0)
again = study.ask()
print("asked again:", again == waiting[0])
study.close()
