"""BINAS in two plans: ``method.py`` is the method, ``fast.py`` and ``paper.py`` its plans, the rest what they use."""
