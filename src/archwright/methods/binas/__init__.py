"""BINAS in three plans: ``method.py`` is the method, ``fast.py``, ``paper.py`` and ``pretrained.py`` its plans."""
