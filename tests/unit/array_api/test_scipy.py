"""Functions of SciPy and scikit-learn that take arrays of any library, given tensors.

SciPy decides when it is imported, so they run in processes of their own.
"""

import subprocess
import sys
from importlib.util import find_spec

import pytest

SCIPY = """
import numpy as np, miniml as ml
from scipy import fft, integrate, signal, special, stats

r = np.random.default_rng(0)
a, b, p = r.normal(size=20), r.normal(size=20), r.uniform(0.1, 0.9, size=20)
calls = {
    "skew": lambda t: stats.skew(t(a)),
    "kurtosis": lambda t: stats.kurtosis(t(a)),
    "moment": lambda t: stats.moment(t(a), 3),
    "entropy": lambda t: stats.entropy(t(p)),
    "gmean": lambda t: stats.gmean(t(p)),
    "rankdata": lambda t: stats.rankdata(t(a)),
    "ttest_ind": lambda t: stats.ttest_ind(t(a), t(b)).statistic,
    "softmax": lambda t: special.softmax(t(a)),
    "erf": lambda t: special.erf(t(a)),
    "rfft": lambda t: fft.rfft(t(a)),
    "fftshift": lambda t: fft.fftshift(t(a)),
    "fftconvolve": lambda t: signal.fftconvolve(t(a), t(b)),
    "trapezoid": lambda t: integrate.trapezoid(t(a)),
    "cumulative_trapezoid": lambda t: integrate.cumulative_trapezoid(t(a)),
}
for name, call in calls.items():
    found = call(ml.Tensor)
    assert isinstance(found, ml.Tensor), (name, type(found))
    np.testing.assert_allclose(found.asnumpy(), call(np.asarray), rtol=1e-9, atol=1e-12)
print(len(calls))
"""

SKLEARN = """
import numpy as np, miniml as ml, sklearn
from sklearn import decomposition, metrics, preprocessing

r = np.random.default_rng(0)
x, y = r.normal(size=(30, 4)), r.integers(0, 3, size=30)
guess, other = np.roll(y, 1), r.normal(size=30)
calls = {
    "accuracy": lambda t: metrics.accuracy_score(t(y), t(guess)),
    "mean_squared_error": lambda t: metrics.mean_squared_error(t(x[:, 0]), t(other)),
    "confusion_matrix": lambda t: metrics.confusion_matrix(t(y), t(guess)),
    "linear_kernel": lambda t: metrics.pairwise.linear_kernel(t(x)),
    "LabelEncoder": lambda t: preprocessing.LabelEncoder().fit_transform(t(y)),
    "PCA": lambda t: decomposition.PCA(2, svd_solver="full").fit(t(x)).transform(t(x)),
}
for name, call in calls.items():
    with sklearn.config_context(array_api_dispatch=True):
        found = call(ml.Tensor)
    expected = call(np.asarray)
    assert isinstance(found, float if np.ndim(expected) == 0 else ml.Tensor), (name, type(found))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-7, atol=1e-12)
print(len(calls))
"""


def run(program):
    with_arrays = "import os; os.environ['SCIPY_ARRAY_API'] = '1'\n" + program
    return subprocess.run(
        [sys.executable, "-c", with_arrays], capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    ("package", "program", "calls"), [("scipy", SCIPY, 14), ("sklearn", SKLEARN, 6)]
)
def test_functions_of_others_take_tensors(package, program, calls):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(calls)]
