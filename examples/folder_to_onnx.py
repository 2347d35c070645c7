"""From a folder of images to an ONNX file under a latency limit: python examples/folder_to_onnx.py

Every step is a call; the same on the command line is in docs/folder.md.
"""

# %% [markdown]
# A folder with one sub-folder a class. Here it is written from handwritten digits; put yours in its place.

# %%
import json
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image
from sklearn.datasets import load_digits

import archwright as aw

FOLDER = Path("digit-images")
digits = load_digits()
for number, (pixels, label) in enumerate(zip(digits.images[:600], digits.target, strict=False)):
    place = FOLDER / f"digit-{label}"
    place.mkdir(parents=True, exist_ok=True)
    Image.fromarray((pixels * 15.9).astype(np.uint8)).save(place / f"{number:03d}.png")

# %% [markdown]
# The search. Latencies are measured on this machine; `limits` may have several values, each gets its own network.

# %%
SEARCH = {"method": "binas", "limits": {"latency_ms": 1.0}, "minutes": 2}
found = aw.search(**SEARCH, data=f"folder:{FOLDER}", augment="crop=1")
low, high = found.best.accuracy_interval
print(f"{found.best.accuracy:.1f} % ({low:.1f} to {high:.1f}) on {found.best.accuracy_on}")
print(f"{found.best.params:,} parameters, {found.best.latency_ms or 'no'} ms measured; report: {found.run}/report.html")

# %% [markdown]
# The model classifies image files.

# %%
images = sorted(FOLDER.glob("digit-3/*.png"))[:3]
for one in found.best.predict(images):
    print(one.image, one.label, f"{100 * one.probability:.0f} %")

# %% [markdown]
# The ONNX file needs no Archwright: its metadata says how an image becomes its input.

# %%
found.best.export("digits.onnx")
session = onnxruntime.InferenceSession("digits.onnx")
facts = session.get_modelmeta().custom_metadata_map
size, mean, std = (json.loads(facts[name]) for name in ("image_size", "mean", "std"))
with Image.open(images[0]) as image:
    grey = np.asarray(image.convert("L").resize((size, size)), np.float32) / 255
x = (grey[None, None] - np.reshape(mean, (1, -1, 1, 1))) / np.reshape(std, (1, -1, 1, 1))
(logits,) = session.run(None, {session.get_inputs()[0].name: x.astype(np.float32)})
print("ONNX Runtime says", json.loads(facts["class_names"])[int(logits.argmax())])
