"""What becomes of a chosen architecture, whatever chose it: trained, tested once, saved, and exported where asked."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import nn

from archwright.costs.measure import Timing
from archwright.data import Batches, ImageData
from archwright.ensembles import Ensemble, EnsembleReport, Mean
from archwright.models import Model, load_member
from archwright.quantise import Answers, CannotQuantise, Int8, OnnxNetwork, clearly_lower, quantise, to_onnx
from archwright.runs.files import Json, write_json
from archwright.search.calibration import calibration_images
from archwright.search.context import Context
from archwright.search.jobs import measure, train_network, training_job
from archwright.search.tested import SUFFIX, keep_tested
from archwright.search.values import Trained
from archwright.spaces.base import Architecture, Network, Scale
from archwright.training import Accuracy
from archwright.training.evaluation import outcomes

MOST_NAMED = 2000
"""Test images whose names a model keeps, at most."""


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
        train_network(network, job, context.stop, lambda _: bar.advance(), context.run.on_epoch(stage), context.team)
    asked = context.configuration.onnx if onnx is None else onnx
    int8 = int8_answer(context, network, task.data)
    return keep_answer(context, network, architecture, task.scale, name, recipe.epochs, onnx=asked, int8=int8)


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
    int8: Int8 | None = None,
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
        int8: ``network`` in int8, where that is the answer: it is measured, and it is the ONNX file, always written.
    """
    data, device = context.task.data if data is None else data, context.device.name
    judged, where = (network, device) if int8 is None else (OnnxNetwork(int8.content), "cpu")
    validation = measure(judged, data, "validation", where)
    test = outcome_on_test(context, judged, data, name, where)
    path = context.run.artifact(f"{name}.safetensors")
    trained = Trained(
        accuracy=test.percent,
        accuracy_interval=(test.low, test.high),
        accuracy_on=f"{data.name} test, {test.count} images",
        validation_accuracy=validation.percent,
        epochs=epochs,
        model=f"artifacts/{name}.safetensors",
        onnx=f"artifacts/{name}.onnx" if onnx or int8 else None,
        precision=None if int8 is None else "int8",
    )
    model = Model(network, context.task.space_text, architecture, scale, data.preprocessing)
    facts = {**(known or {}), **({} if int8 is None else int8.facts()), **tested_files(data)}
    model.measured = {**trained.model_dump(mode="json", exclude={"model", "onnx", "precision"}), **facts}
    model.int8 = None if int8 is None else int8.content
    model.save(path)
    if onnx and int8 is None:
        model.export(path.with_suffix(".onnx"))
    return trained


def tested_files(data: ImageData) -> dict[str, Json]:
    """The image files that a model was tested on, so that anybody can test its file again; none for other data.

    Args:
        data: whose test part it was; of more than :data:`MOST_NAMED` images none is named.
    """
    count = len(data.test)
    names = [data.test.file(number) for number in range(count)] if count <= MOST_NAMED else []
    return {"test_files": list(names)} if names and all(names) else {}


def int8_answer(context: Context, network: Network, data: ImageData) -> Int8 | None:
    """The answer in int8, where ``--precision`` asks for it; what cannot be quantised is said, and stays in float.

    Args:
        context: of the search.
        network: trained.
        data: the images as it is shown them: calibrated on training images, judged on validation.
    """
    asked = context.configuration.precision
    if asked in (None, "fp32"):
        return None
    images = calibration_images(data, context.progress)
    content = to_onnx(copy.deepcopy(network).cpu().eval(), images[:1])

    def judge(file: bytes) -> tuple[Answers, float]:
        batches = Batches(data, "validation", 256, shuffle=False, drop_last=False)
        accuracy, found = outcomes(OnnxNetwork(file), batches, device="cpu")
        return found.right, accuracy.loss

    try:
        made = quantise(content, images.numpy(), lambda file: judge(file)[0], lambda file: judge(file)[1])
    except CannotQuantise as error:
        context.progress.say(f"The answer stays in float: {error}")
        return None
    whole, own = judge(content)[0], judge(made.content)[0]
    lower = clearly_lower(whole, own)
    left = f"; {', '.join(made.float_layers)} stay in float" if made.float_layers else ""
    taken = asked == "int8" or not lower
    context.progress.say(
        f"In int8 the answer has {100 * own.mean():.1f} % on validation, in float {100 * whole.mean():.1f} %{left}: "
        f"{'int8' if taken else 'float'} is taken."
    )
    return made if taken else None


def outcome_on_test(
    context: Context, network: nn.Module, data: ImageData, name: str, device: str | None = None
) -> Accuracy:
    """Accuracy on the test part; what the network says of each image is kept for the page of the run.

    Args:
        context: of the search.
        network: that is tested.
        data: the images as it is shown them.
        name: of its files.
        device: where it runs, if not where the search does.
    """
    device = device or context.device.name
    batches = Batches(data, "test", 256, shuffle=False, drop_last=False, device=device)
    accuracy, found = outcomes(network, batches, device=device)
    keep_tested(context.run.artifact(f"{name}{SUFFIX}"), data, found)
    return accuracy


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
    validation = measure(ensemble.network, data, "validation", device)
    test = outcome_on_test(context, ensemble.network, data, name)
    trained = Trained(
        accuracy=test.percent,
        accuracy_interval=(test.low, test.high),
        accuracy_on=f"{data.name} test, {test.count} images",
        validation_accuracy=validation.percent,
        epochs=int(max(one.measured.get("epochs", 0) for one in members)),
        model=f"artifacts/{name}",
        onnx=f"artifacts/{name}.onnx" if context.configuration.onnx else None,
        precision="int8" if any(one.int8 is not None for one in members) else None,
    )
    ensemble.measured = trained.model_dump(mode="json", exclude={"model", "onnx", "precision"})
    ensemble.network.cpu()
    ensemble.save(context.run.artifact(name))
    if trained.onnx is not None:
        ensemble.export(context.run.artifact(f"{name}.onnx"))
    timed = ensemble.report(Batches(data, "test", 256, shuffle=False, drop_last=False), Timing(warm_up=2, repeats=10))
    write_json(context.run.artifact(f"{name}-report.json"), timed.to_dict())
    return trained, replace(timed, latency_ms=None, member_latency_ms=None)
