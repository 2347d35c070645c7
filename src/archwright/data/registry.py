"""The data sets by name. Nothing here imports torch, so listing them is instant."""

from __future__ import annotations

from archwright.registry import Entry, Registry

datasets = Registry(
    "dataset",
    Entry("digits", "archwright.data.sources:digits", "1,797 grey 8x8 handwritten digits, part of scikit-learn"),
    Entry(
        "fashion-mnist", "archwright.data.sources:fashion_mnist", "70,000 grey 28x28 pictures of clothes, 10 classes"
    ),
    Entry("cifar10", "archwright.data.sources:cifar10", "60,000 colour 32x32 photographs, 10 classes"),
    Entry("cifar100", "archwright.data.sources:cifar100", "60,000 colour 32x32 photographs, 100 classes"),
    Entry("random", "archwright.data.sources:random", "Gaussian noise with random labels: random:classes=10,size=16"),
    Entry("folder", "archwright.data.folder:folder", "your images, one sub-folder a class: folder:PATH"),
    Entry("tar", "archwright.data.tar:tar", "your images in archives, key.jpg beside key.cls: tar:PATH/{000..127}.tar"),
    Entry("npz", "archwright.data.arrays:npz", "your NumPy archive with x_train and y_train, or x and y: npz:PATH"),
)
