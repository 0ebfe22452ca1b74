"""Click-through-rate prediction: data, models, metrics and training on top of `erase_core`."""

from erase_core.ctr.averaging import ParameterAverage
from erase_core.ctr.embedding import FusedEmbedding
from erase_core.ctr.feed import ResidentFeed
from erase_core.ctr.linear import LinearReference, logistic_regression
from erase_core.ctr.metrics import Evaluation, NormalizedEntropy, auc, calibration
from erase_core.ctr.models import MODELS, ModelOptions, build_model, model_options
from erase_core.ctr.optimizers import optimizers
from erase_core.ctr.prepared import ClickData, PreparedDataset, PreparedDatasetError, Split, load
from erase_core.ctr.rowwise_adagrad import RowWiseAdagrad
from erase_core.ctr.schema import CtrSchema
from erase_core.ctr.synthetic import SyntheticClicks, SyntheticDataset
from erase_core.ctr.training import Scores, evaluate, predict, score, train

__all__ = [
    "MODELS",
    "ClickData",
    "CtrSchema",
    "Evaluation",
    "FusedEmbedding",
    "LinearReference",
    "ModelOptions",
    "NormalizedEntropy",
    "ParameterAverage",
    "PreparedDataset",
    "PreparedDatasetError",
    "ResidentFeed",
    "RowWiseAdagrad",
    "Scores",
    "Split",
    "SyntheticClicks",
    "SyntheticDataset",
    "auc",
    "build_model",
    "calibration",
    "evaluate",
    "load",
    "logistic_regression",
    "model_options",
    "optimizers",
    "predict",
    "score",
    "train",
]
