"""Pictures for the documentation, at a quarter of their bytes: python docs/shrink.py FROM.png ... FOLDER."""

import sys
from pathlib import Path

from PIL import Image

*sources, folder = map(Path, sys.argv[1:])
for source in sources:
    with Image.open(source) as picture:
        small = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    small.save(folder / source.name, optimize=True)
