"""Mistakes that a type checker finds; each line says which error it is given."""

import numpy as np

from miniml import Parameter, Primitive, Tensor, nn, ops, optim


class MistakenSnake(Primitive):
    alpha: float = 1.0

    def infer_shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return x

    def infer_dtype(self, x: np.dtype[np.float32]) -> np.dtype[np.float32]:
        return x


def mistakes(t: Tensor, net: nn.Cell) -> None:
    nn.Dense("4", 2)  # arg-type
    nn.Dense(4)  # call-arg
    nn.Dense(4, 2, biases=False)  # call-arg
    nn.ReLU(t)  # call-arg
    nn.LSTM(2, 3)(t).sum()  # attr-defined
    t.reshpae(2, 2)  # attr-defined
    net(t).nump()  # attr-defined
    (t + 1).backward()  # attr-defined
    t[0].sum().unsqueeze(0)  # attr-defined
    ops.sin(t).cuda()  # attr-defined
    ops.add(t)  # call-arg
    ops.add(t, t, t)  # call-arg
    ops.sin(y=t)  # call-arg
    ops.where(t > 0, t)  # call-arg
    ops.sum(t, axes=0)  # call-arg
    ops.sine(t)  # attr-defined
    ops.conv1d(t)  # call-arg
    ops.conv3d(t, t, strides=2)  # call-arg
    ops.max_pool2d(t, 2, stride="two")  # arg-type
    ops.conv2d(t, t).cuda()  # attr-defined
    MistakenSnake("big")  # arg-type
    MistakenSnake(beta=1.0)  # call-arg
    ops.LeakyReLU("steep")  # arg-type
    MistakenSnake(0.5).alpha = 2.0  # misc
    optim.Adam(net)  # arg-type
    Parameter(np.ones(2), nane="w")  # call-arg
    net.trainable_parms()  # attr-defined
