"""What becomes of a chosen architecture, whatever chose it: trained, tested once, saved, and exported where asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from archwright.costs.measure import Timing
from archwright.data import Batches, ImageData
from archwright.ensembles import Ensemble, EnsembleReport, Mean
from archwright.models import Model, load_member
from archwright.runs.files import Json, write_json
from archwright.search.context import Context
from archwright.search.jobs import measure, train_network, training_job
from archwright.search.values import Trained
from archwright.spaces.base import Architecture, Network, Scale


def train_answer(
    context: Context,
    architecture: Architecture,
    name: str = "best",
    *,
    stage: str = "train",
    seed: int | None = None,
    onnx: bool | None = None,
) -> Trained:
    """Train ``architecture`` from scratch by the task's final recipe, and keep it as ``name``.

    Its checkpoints are those of ``stage``: killed and called again, the training goes on.

    Args:
        context: of the search.
        architecture: what was chosen.
        name: of the files.
        stage: that trains it.
        seed: of weights and images; the search's by default.
        onnx: whether to write an ONNX file, too; as the configuration says by default.
    """
    task, recipe = context.task, context.task.final_recipe
    folder = str(context.run.folder / "checkpoints" / stage)
    job = training_job(context, architecture, folder, recipe=recipe.model_dump(), split="validation")
    if seed is not None:
        job = replace(job, seed=seed)
    network = job.network()
    steps = recipe.epochs * max(1, len(task.data.train) // recipe.batch_size)
    with context.progress.task("training", steps) as bar:
        train_network(network, job, context.stop, lambda _: bar.advance(), context.run.on_epoch(stage))
    asked = context.configuration.onnx if onnx is None else onnx
    return keep_answer(context, network, architecture, task.scale, name, recipe.epochs, onnx=asked)


def keep_answer(
    context: Context,
    network: Network,
    architecture: Architecture,
    scale: Scale,
    name: str,
    epochs: int,
    *,
    onnx: bool = False,
    data: ImageData | None = None,
    known: Mapping[str, Json] | None = None,
) -> Trained:
    """Validate and test a trained ``network``, and save it as ``artifacts/NAME.safetensors`` (and ``.onnx``).

    Args:
        context: of the search.
        network: of ``architecture`` at ``scale``.
        architecture: what was chosen.
        scale: of the network; a method may search at another one than the task's.
        name: of the files.
        epochs: that it was trained for.
        onnx: whether to write an ONNX file, too; needs the extra of that name.
        data: the images as this network is shown them, where that is not as the task has them.
        known: what else the model's file is to say of it.
    """
    data, device = context.task.data if data is None else data, context.device.name
    validation, test = (measure(network, data, split, device) for split in ("validation", "test"))
    path = context.run.artifact(f"{name}.safetensors")
    trained = Trained(
        accuracy=test.percent,
        accuracy_interval=(test.low, test.high),
        accuracy_on=f"{data.name} test, {test.count} images",
        validation_accuracy=validation.percent,
        epochs=epochs,
        model=f"artifacts/{name}.safetensors",
        onnx=f"artifacts/{name}.onnx" if onnx else None,
    )
    model = Model(network, context.task.space_text, architecture, scale, data.preprocessing)
    model.measured = {**trained.model_dump(mode="json", exclude={"model", "onnx"}), **(known or {})}
    model.save(path)
    if onnx:
        model.export(path.with_suffix(".onnx"))
    return trained


def keep_ensemble(
    context: Context, names: Sequence[str], mean: Mean, name: str = "best"
) -> tuple[Trained, EnsembleReport]:
    """Validate and test the answers ``names`` as one ensemble, and save it as the folder ``artifacts/NAME``.

    The report, with times that differ from one call to the next, is ``artifacts/NAME-report.json``; what is returned
    has none.

    Args:
        context: of the search; the answers are files of its run.
        names: of their files, without the ending.
        mean: how the members' predictions become one.
        name: of the ensemble's folder.
    """
    data, device = context.task.data, context.device.name
    members = tuple(load_member(context.run.check_file(f"artifacts/{one}.safetensors")) for one in names)
    ensemble = Ensemble(members, mean)
    validation, test = (measure(ensemble.network, data, split, device) for split in ("validation", "test"))
    trained = Trained(
        accuracy=test.percent,
        accuracy_interval=(test.low, test.high),
        accuracy_on=f"{data.name} test, {test.count} images",
        validation_accuracy=validation.percent,
        epochs=int(max(one.measured.get("epochs", 0) for one in members)),
        model=f"artifacts/{name}",
        onnx=f"artifacts/{name}.onnx" if context.configuration.onnx else None,
    )
    ensemble.measured = trained.model_dump(mode="json", exclude={"model", "onnx"})
    ensemble.network.cpu()
    ensemble.save(context.run.artifact(name))
    if trained.onnx is not None:
        ensemble.export(context.run.artifact(f"{name}.onnx"))
    timed = ensemble.report(Batches(data, "test", 256, shuffle=False, drop_last=False), Timing(warm_up=2, repeats=10))
    write_json(context.run.artifact(f"{name}-report.json"), timed.to_dict())
    return trained, replace(timed, latency_ms=None, member_latency_ms=None)
