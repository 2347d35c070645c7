"""Training: one loop that survives kills, the plain step, recipes, and evaluation with a confidence interval."""

from archwright.training.ema import Ema
from archwright.training.evaluation import Accuracy, evaluate, recalibrate
from archwright.training.loop import Position, Stateful, Step, drive
from archwright.training.plain import BatchSource, make_optimizer, plain_step, train
from archwright.training.recipe import RECIPES, Recipe, get_recipe

__all__ = [
    "RECIPES",
    "Accuracy",
    "BatchSource",
    "Ema",
    "Position",
    "Recipe",
    "Stateful",
    "Step",
    "drive",
    "evaluate",
    "get_recipe",
    "make_optimizer",
    "plain_step",
    "recalibrate",
    "train",
]
