"""The training-free metrics by name. Listing them imports no torch.

Third parties add theirs through the entry-point group ``archwright.proxies``, each an
`archwright.proxies.metrics.Proxy`.
"""

from __future__ import annotations

from archwright.registry import Entry, Registry

_HOME = "archwright.proxies.metrics"

PROXIES = Registry(
    "proxy",
    Entry("grad", f"{_HOME}:GRAD", "sum over layers of the norm of the loss gradient"),
    Entry("snip", f"{_HOME}:SNIP", "sum over weights of |weight x loss gradient|"),
    Entry("grad-whole", f"{_HOME}:GRAD_WHOLE", "norm of the loss gradient of all layers at once, eq. 7.2 as printed"),
    Entry("snip-whole", f"{_HOME}:SNIP_WHOLE", "|theta . loss gradient|, the sum of eq. 7.3 as printed"),
    Entry("grasp", f"{_HOME}:GRASP", "-theta.(H g): how the gradient flow changes when weights go"),
    Entry("grasp-abs", f"{_HOME}:GRASP_ABS", "|theta.(H g)|, the absolute form of eq. 7.3"),
    Entry("trace", f"{_HOME}:TRACE", "root of the mean squared gradient of the true-class logit (NTK trace norm)"),
    Entry("kappa", f"{_HOME}:KAPPA", "condition number of the neural tangent kernel; lower is better"),
    Entry("knas", f"{_HOME}:KNAS", "mean of the Gram matrix of per-example gradients"),
    Entry("fisher", f"{_HOME}:FISHER", "sum over channels of (activation . loss gradient)^2 / 2"),
    Entry("fisher-fan-in", f"{_HOME}:FISHER_FAN_IN", "fisher, each channel times its fan-in, as public code has it"),
    Entry("jacob_cov", f"{_HOME}:JACOB_COV", "how little the input gradients of the examples correlate"),
    Entry("synflow", f"{_HOME}:SYNFLOW", "path strength of |weights| from an all-ones input; needs no data"),
    Entry("naswot", f"{_HOME}:NASWOT", "log-determinant of the Hamming kernel of ReLU patterns"),
    Entry("regions", f"{_HOME}:REGIONS", "linear regions the batch falls into; for small networks and large batches"),
    Entry("swap", f"{_HOME}:SWAP", "different patterns of the ReLUs' units over the batch (SWAP)"),
    Entry("zico", f"{_HOME}:ZICO", "log of mean over deviation of gradients between half batches, by layer (ZiCo)"),
    Entry("meco", f"{_HOME}:MECO", "least eigenvalue of the channels' correlations, by layer (MeCo)"),
    Entry("expressivity", f"{_HOME}:EXPRESSIVITY", "entropy of the spectra of the blocks' features (AZ-NAS)"),
    Entry("progressivity", f"{_HOME}:PROGRESSIVITY", "least rise of that entropy from block to block (AZ-NAS)"),
    Entry("trainability", f"{_HOME}:TRAINABILITY", "how near to 1 the blocks' Jacobians' norms are (AZ-NAS)"),
    Entry("params", f"{_HOME}:PARAMS", "number of convolution and linear weights, the honest baseline"),
    Entry("macs", f"{_HOME}:MACS", "multiply-accumulates for one image, the honest baseline"),
    group="proxies",
)
