"""Networks: cells, layers and losses."""

import typing

from .. import public
from . import init as init
from .activation import GELU as GELU
from .activation import Identity as Identity
from .activation import LeakyReLU as LeakyReLU
from .activation import ReLU as ReLU
from .activation import Sigmoid as Sigmoid
from .activation import Tanh as Tanh
from .attention import MultiHeadAttention as MultiHeadAttention
from .cell import Cell as Cell
from .container import CellList as CellList
from .container import Sequential as Sequential
from .linear import Dense as Dense
from .linear import Embedding as Embedding
from .loss import CrossEntropyLoss as CrossEntropyLoss
from .loss import MSELoss as MSELoss
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
from .pool import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from .pool import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from .pool import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from .pool import AdaptiveMaxPool1d as AdaptiveMaxPool1d
from .pool import AdaptiveMaxPool2d as AdaptiveMaxPool2d
from .pool import AdaptiveMaxPool3d as AdaptiveMaxPool3d
from .pool import AvgPool1d as AvgPool1d
from .pool import AvgPool2d as AvgPool2d
from .pool import AvgPool3d as AvgPool3d
from .pool import Flatten as Flatten
from .pool import GlobalAvgPool as GlobalAvgPool
from .pool import GlobalMaxPool as GlobalMaxPool
from .pool import MaxPool1d as MaxPool1d
from .pool import MaxPool2d as MaxPool2d
from .pool import MaxPool3d as MaxPool3d
from .pool import Upsample as Upsample
from .positions import LearnedPositions as LearnedPositions
from .positions import RotaryPositions as RotaryPositions
from .positions import SinusoidalPositions as SinusoidalPositions
from .recurrent import GRU as GRU
from .recurrent import LSTM as LSTM
from .recurrent import RNN as RNN
from .torch_state import load_torch_state as load_torch_state
from .transformer import TransformerDecoderLayer as TransformerDecoderLayer
from .transformer import TransformerEncoderLayer as TransformerEncoderLayer
from .window import Conv1d as Conv1d
from .window import Conv2d as Conv2d
from .window import Conv3d as Conv3d
from .window import ConvTranspose1d as ConvTranspose1d
from .window import ConvTranspose2d as ConvTranspose2d
from .window import ConvTranspose3d as ConvTranspose3d

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = public.names(globals(), "init")
