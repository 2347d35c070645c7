"""BINAS: networks under latency limits: python examples/tutorials/binas.py

The embedded digits, two limits, one minute. Longer is better: the settings below are for a first look.
"""

# %%
import archwright as aw

MINUTES = 1.0

# %% [markdown]
# A limit in milliseconds is a promise: the network is timed on this machine before it is the answer.

# %%
found = aw.search("binas", data="digits", minutes=MINUTES, threads=1)

# %% [markdown]
# One model a limit. Simple models on the same images show what the search is worth.

# %%
for one in found.models:
    print(f"limit {one.limits}: {one.accuracy:.1f} %, {one.latency_ms:.3f} ms, {one.params:,} parameters")
print("beside:", {name: round(one.accuracy, 1) for name, one in found.beside.items()})
print(found.verdict)

# %%
found.best.export("digits.pt2")
print("the page:", aw.__name__, found.folder / "report.html")
