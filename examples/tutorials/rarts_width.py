"""RARTS for width: thin a network you have: python examples/tutorials/rarts_width.py

Channels get scores while the network trains; those of low score are really removed, and the rest is fine-tuned.
"""

# %%
import archwright as aw

SETTINGS = {"search_epochs": 2, "epochs": 2, "final_epochs": 3, "keep_channels": 0.6, "timing": False, "compare": True}

# %% [markdown]
# Any torch module will do: `network` names a known one, or a function of yours (`FILE.py:FUNCTION`).

# %%
found = aw.search("rarts-width", data="digits", network="resnet20", **SETTINGS)
whole = found.beside["unpruned"]
print(f"{whole.params:,.0f} -> {found.best.params:,.0f} parameters")
print(f"{whole.accuracy:.1f} % -> {found.best.accuracy:.1f} %")
