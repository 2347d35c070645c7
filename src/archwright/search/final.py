"""What becomes of a chosen architecture, whatever chose it: trained, tested once, saved, and exported where asked."""

from __future__ import annotations

from archwright.models import Model
from archwright.search.context import Context
from archwright.search.jobs import measure, train_network, training_job
from archwright.search.values import Trained
from archwright.spaces.base import Architecture, Network, Scale


def train_answer(context: Context, architecture: Architecture, name: str = "best") -> Trained:
    """Train ``architecture`` from scratch by the task's final recipe, and keep it as ``name``.

    Its checkpoints are those of the stage ``train``: killed and called again, the training goes on.
    """
    task, recipe = context.task, context.task.final_recipe
    folder = str(context.run.folder / "checkpoints" / "train")
    job = training_job(context, architecture, folder, recipe=recipe.model_dump(), split="validation")
    network = job.network()
    steps = recipe.epochs * max(1, len(task.data.train) // recipe.batch_size)
    with context.progress.task("training", steps) as bar:
        train_network(network, job, context.stop, lambda _: bar.advance(), context.run.on_epoch("train"))
    asked = context.configuration.onnx
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
    """
    data, device = context.task.data, context.device.name
    validation, test = (measure(network, data, split, device) for split in ("validation", "test"))
    path = context.run.artifact(f"{name}.safetensors")
    trained = Trained(
        accuracy=test.percent,
        accuracy_interval=(test.low, test.high),
        accuracy_on=f"{data.name} test, {test.count} images",
        validation_accuracy=validation.percent,
        epochs=epochs,
        model=f"artifacts/{path.name}",
        onnx=f"artifacts/{name}.onnx" if onnx else None,
    )
    model = Model(network, context.task.space_text, architecture, scale, data.preprocessing)
    model.measured = trained.model_dump(mode="json", exclude={"model", "onnx"})
    model.save(path)
    if onnx:
        model.export(path.with_suffix(".onnx"))
    return trained
