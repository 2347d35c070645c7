"""NSGA-II: a front of your own objectives: python examples/tutorials/nsga2.py

Your function returns several numbers; the answer is the front that no other architecture beats.
"""

# %%
import archwright as aw

space = aw.ChoiceSpace(
    {"width": aw.Integer(8, 256, log=True), "depth": [1, 2, 3, 4], "rate": aw.Real(1e-4, 1e-1, log=True)}
)

# %% [markdown]
# Here a formula stands for a training: wide and deep is accurate, and slow.


# %%
def measured(one):
    """What a training would tell."""
    size = one["width"] * one["depth"]
    off = abs(one["rate"] / 3e-3 - 1)
    return {"accuracy": 100 * size / (size + 50) - 5 * min(off, 3), "seconds": size / 100}


# %%
found = aw.search("nsga2", space=space, evaluate=measured, objectives=("accuracy", "-seconds"), evaluations=120)
for one in found.front[:5]:
    print(one.objectives, one.architecture)
print(len(found.front), "on the front")
