"""Networks: cells, layers and losses."""

import typing

from .. import public
from . import init as init
from .activation import CELU as CELU
from .activation import ELU as ELU
from .activation import GELU as GELU
from .activation import SELU as SELU
from .activation import HardSigmoid as HardSigmoid
from .activation import HardSwish as HardSwish
from .activation import HardTanh as HardTanh
from .activation import Identity as Identity
from .activation import LeakyReLU as LeakyReLU
from .activation import LogSigmoid as LogSigmoid
from .activation import LogSoftmax as LogSoftmax
from .activation import Mish as Mish
from .activation import PReLU as PReLU
from .activation import ReLU as ReLU
from .activation import ReLU6 as ReLU6
from .activation import Sigmoid as Sigmoid
from .activation import SiLU as SiLU
from .activation import Softmax as Softmax
from .activation import Softplus as Softplus
from .activation import Softsign as Softsign
from .activation import Tanh as Tanh
from .attention import MultiHeadAttention as MultiHeadAttention
from .attention import TransformerEncoderLayer as TransformerEncoderLayer
from .cell import Cell as Cell
from .container import CellDict as CellDict
from .container import CellList as CellList
from .container import Sequential as Sequential
from .linear import Dense as Dense
from .linear import Embedding as Embedding
from .loss import BCELoss as BCELoss
from .loss import BCEWithLogitsLoss as BCEWithLogitsLoss
from .loss import CosineSimilarity as CosineSimilarity
from .loss import CrossEntropyLoss as CrossEntropyLoss
from .loss import CTCLoss as CTCLoss
from .loss import HingeLoss as HingeLoss
from .loss import HuberLoss as HuberLoss
from .loss import KLDivLoss as KLDivLoss
from .loss import L1Loss as L1Loss
from .loss import MSELoss as MSELoss
from .loss import NLLLoss as NLLLoss
from .norm import BatchNorm1d as BatchNorm1d
from .norm import BatchNorm2d as BatchNorm2d
from .norm import Dropout as Dropout
from .norm import Dropout1d as Dropout1d
from .norm import Dropout2d as Dropout2d
from .norm import GroupNorm as GroupNorm
from .norm import InstanceNorm1d as InstanceNorm1d
from .norm import InstanceNorm2d as InstanceNorm2d
from .norm import LayerNorm as LayerNorm
from .norm import RMSNorm as RMSNorm
from .recurrent import GRU as GRU
from .recurrent import LSTM as LSTM
from .recurrent import RNN as RNN
from .torch_state import load_torch_state as load_torch_state
from .window import AvgPool2d as AvgPool2d
from .window import Conv2d as Conv2d
from .window import Flatten as Flatten
from .window import MaxPool2d as MaxPool2d

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = public.names(globals(), "init")
