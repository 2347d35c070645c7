"""The registered methods; listing them imports no torch."""

from __future__ import annotations

from archwright.registry import Entry, Registry

methods = Registry(
    "method",
    Entry("random", "archwright.methods.baselines:RandomSearch", "distinct random architectures, the best one wins"),
    Entry(
        "evolution",
        "archwright.methods.baselines:Evolution",
        "evolution: mutates good ones, drops the oldest",
    ),
    Entry("nsga2", "archwright.methods.nsga2:Nsga2", "NSGA-II: the front of several objectives, of your own too"),
    Entry(
        "binas",
        "archwright.methods.binas:Binas",
        "the best network under hard latency limits, exactly, and its front",
    ),
    Entry("nasi", "archwright.methods.nasi:Nasi", "search at initialisation by the trace of the tangent kernel"),
    Entry("hnas", "archwright.methods.hnas:Hnas", "training-free scores boosted by Bayesian optimisation"),
    Entry("darts", "archwright.methods.darts:Darts", "DARTS by gradients on a supernet, first or second order"),
    Entry("milenas", "archwright.methods.darts:MiLeNas", "MiLeNAS: architecture from both halves of the data"),
    Entry("gdas", "archwright.methods.darts:Gdas", "GDAS: one sampled path a step"),
    Entry("pc-darts", "archwright.methods.darts_cures:PcDarts", "DARTS on part of the channels, with weighted edges"),
    Entry("drnas", "archwright.methods.darts_cures:DrNas", "DARTS with weights drawn from Dirichlet distributions"),
    Entry("smooth-darts", "archwright.methods.darts_cures:SmoothDarts", "DARTS that learns under perturbed alpha"),
    Entry("oles", "archwright.methods.darts_cures:Oles", "DARTS that stops training operations which overfit"),
    Entry("snas", "archwright.methods.darts:Snas", "SNAS: soft samples, weights and architecture together"),
    Entry("rarts", "archwright.methods.rarts:Rarts", "RARTS: two coupled copies of the weights, no collapse"),
    Entry("rarts-width", "archwright.methods.rarts_width:RartsWidth", "thin a network you have and fine-tune it"),
    Entry("nesbs", "archwright.methods.nesbs:Nesbs", "an ensemble of different architectures by Bayesian sampling"),
    Entry("rsps", "archwright.methods.conas:Rsps", "random search with shared weights"),
    Entry(
        "train", "archwright.methods.given:Given", "no search: train an architecture that is given (archwright train)"
    ),
    Entry("conas", "archwright.methods.conas:Conas", "a supernet's loss as a sparse polynomial, minimised exactly"),
)
