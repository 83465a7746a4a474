"""Does a given model use the recovery? Small tasks in which something fails, in arms that tell it differently.

Each task plants the failure as the model's own first call, the same for every arm, so that arms are paired.
What is asked for is a goal and not a path, and what is scored is code and not a model: a random number that
nobody can guess, or an effect that has to be there exactly once.
"""

from .arms import ARMS
from .runs import Outcome, Plan, run_all
from .scores import mcnemar, table, wilson
from .tasks import KINDS, Task, tasks

__all__ = ["ARMS", "KINDS", "Outcome", "Plan", "Task", "mcnemar", "run_all", "table", "tasks", "wilson"]
