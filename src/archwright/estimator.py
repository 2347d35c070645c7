"""A search as a scikit-learn classifier: ``ArchwrightClassifier().fit(images, labels).predict(more_images)``.

It fits into pipelines, cross-validation and grid searches like any other estimator. Images are arrays; rows of pixels,
as scikit-learn's own image sets have them, are made images again.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from archwright.data.arrays import as_pixels
from archwright.errors import InputError
from archwright.search.answer import Answer
from archwright.search.engine import search

Pixels = NDArray[np.uint8]


class ArchwrightClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Finds a network for images, trains it and classifies with it.

    Args:
        method: name of the search method (``archwright methods`` lists them).
        minutes: time budget of :meth:`fit`; None for as long as the method's own settings take.
        limits: upper limits, as ``{"latency_ms": 2.0}``.
        settings: further settings of :func:`archwright.search` and options of the method.
        image_shape: (H, W) or (C, H, W) of an image, where X has one row of pixels an image; by default a square one,
            grey or of three colours.
        random_state: seed of the search.
        run: folder of the run; a new one in the runs root by default.

    Attributes:
        classes_: labels, sorted.
        n_features_in_: numbers of an image.
        answer_: what the search found, with its run, its front and what simple things reach.
        model_: the trained network.
        pixel_range_: least and greatest pixel of the training images, which are black and white to the network; 0 and
            255 for 8-bit images.

    Example:
        >>> from sklearn.datasets import load_digits  # doctest: +SKIP
        >>> x, y = load_digits(return_X_y=True)  # doctest: +SKIP
        >>> ArchwrightClassifier(minutes=1).fit(x[:1500], y[:1500]).score(x[1500:], y[1500:])  # doctest: +SKIP
    """

    def __init__(
        self,
        method: str = "binas",
        *,
        minutes: float | None = 2.0,
        limits: Mapping[str, float] | None = None,
        settings: Mapping[str, Any] | None = None,
        image_shape: tuple[int, ...] | None = None,
        random_state: int = 0,
        run: Path | str | None = None,
    ) -> None:
        self.method = method
        self.minutes = minutes
        self.limits = limits
        self.settings = settings
        self.image_shape = image_shape
        self.random_state = random_state
        self.run = run

    def __sklearn_tags__(self) -> Any:
        """Images are arrays of any number of dimensions, and a few images of a class are needed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.classifier_tags.poor_score = True  # scikit-learn's tables of blobs are no images
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Search for a network on images ``X`` with labels ``y`` of any kind, and train it.

        Args:
            X: (n, H, W), (n, H, W, C), (n, C, H, W), or (n, pixels); any numbers.
            y: (n,).
        """
        array, labels = validate_data(self, X, y, allow_nd=True, ensure_min_samples=2)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError("at least two classes", f"one class: {self.classes_[0]}")
        whole = array.dtype == np.uint8
        self.pixel_range_ = (0.0, 255.0) if whole else (float(array.min()), float(array.max()))
        given = {"minutes": self.minutes, "limits": dict(self.limits or {}), **(self.settings or {})}
        self.answer_: Answer = search(
            self.method,
            data=(self._images(array), numbers.astype(np.int64)),
            seed=int(self.random_state),
            run=self.run,
            **{name: value for name, value in given.items() if value is not None},
        )
        self.model_ = self.answer_.best.load()
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities (n, classes), in the order of ``classes_``, of images ``X`` as :meth:`fit` takes them."""
        check_is_fitted(self, "model_")
        array = validate_data(self, X, allow_nd=True, reset=False)
        return self.model_.predict_proba(self._images(array)).astype(np.float64)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likeliest label of each image of ``X``, (n,)."""
        best = self.predict_proba(X).argmax(1)
        found: NDArray[Any] = self.classes_[best]
        return found

    def _images(self, array: NDArray[Any]) -> Pixels:
        """8-bit images (n, C, H, W) of whatever was given, the range of the training images from black to white."""
        if array.ndim == 2:
            array = array.reshape(len(array), *self._shape_of_rows(array.shape[1]))
        if array.dtype != np.uint8:
            low, high = self.pixel_range_
            array = np.clip((array.astype(np.float64) - low) / ((high - low) or 1.0), 0, 1)
        return as_pixels(array, "X")

    def _shape_of_rows(self, pixels: int) -> tuple[int, ...]:
        """(H, W) or (C, H, W) of an image that is given as a row."""
        if self.image_shape is not None:
            if int(np.prod(self.image_shape)) != pixels:
                raise InputError(f"rows of {np.prod(self.image_shape)} pixels (image_shape)", f"{pixels} features")
            return tuple(self.image_shape)
        for channels in (1, 3):
            side = isqrt(pixels // channels)
            if channels * side * side == pixels:
                return (side, side) if channels == 1 else (channels, side, side)
        raise InputError(
            "images, or rows of square ones (X)",
            f"{pixels} features a row",
            "Give image_shape, or X of three dimensions.",
        )
