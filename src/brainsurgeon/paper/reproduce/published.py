"""The figures of the paper (tables 1 to 5), accuracy in per cent by method and sparsity."""

from __future__ import annotations

Column = dict[float, float]


def _column(sparsities: tuple[float, ...], *values: float) -> Column:
    return dict(zip(sparsities, values, strict=True))


_HIGH = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
_WIDE = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_LOW = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)

PUBLISHED: dict[str, dict[str, Column]] = {
    "mlpnet": {
        "mp": _column(_HIGH, 93.93, 93.78, 93.62, 92.89, 90.30, 83.64, 32.25),
        "wf-s": _column(_HIGH, 93.92, 93.748, 93.48, 93.13, 90.77, 83.16, 34.55),
        "cbs-s": _column(_HIGH, 93.91, 93.85, 93.75, 93.59, 92.37, 88.24, 66.64),
        "wf": _column(_HIGH, 94.02, 93.82, 93.77, 93.57, 91.69, 85.54, 38.26),
        "cbs": _column(_HIGH, 93.96, 93.96, 93.98, 93.90, 93.14, 88.92, 55.45),
    },
    "resnet20": {
        "mp": _column(_WIDE, 90.77, 89.98, 88.44, 85.24, 78.79, 54.01, 11.79),
        "wf-s": _column(_WIDE, 90.81, 90.02, 88.06, 84.95, 78.09, 52.05, 11.44),
        "cbs-s": _column(_WIDE, 90.97, 90.66, 89.32, 86.48, 79.55, 61.30, 16.83),
        "wf": _column(_WIDE, 91.37, 91.15, 90.23, 87.96, 81.05, 62.63, 11.49),
        "cbs": _column(_WIDE, 91.35, 91.21, 90.58, 88.88, 81.84, 51.28, 13.68),
    },
    "cifarnet": {
        "mp": _column(_HIGH, 79.77, 79.90, 79.49, 76.92, 49.91, 17.61, 10.12),
        "wf-s": _column(_HIGH, 79.76, 79.87, 79.78, 77.24, 52.66, 14.81, 9.34),
        "cbs-s": _column(_HIGH, 79.84, 79.86, 79.47, 77.82, 62.09, 32.63, 15.49),
        "wf": _column(_HIGH, 79.76, 79.77, 79.65, 78.72, 61.95, 15.29, 9.90),
        "cbs": _column(_HIGH, 79.82, 79.85, 79.72, 78.58, 65.52, 21.07, 12.16),
    },
    "mobilenet-0.75": {  # the paper's is of width 1.0
        "mp": _column(_LOW, 71.60, 69.16, 62.61, 41.94, 6.78, 0.11),
        "wf-s": _column(_LOW, 71.68, 69.53, 63.10, 44.07, 7.33, 0.11),
        "cbs-s": _column(_LOW, 71.48, 69.37, 62.96, 43.10, 7.63, 0.12),
        "wf": _column(_LOW, 71.88, 71.15, 68.91, 60.90, 29.36, 0.24),
        "cbs": _column(_LOW, 71.88, 71.45, 70.21, 66.37, 55.11, 16.38),
        "mp+cbs-u": _column(_LOW, 71.88, 71.43, 70.24, 66.33, 55.51, 16.58),
        "wf-s+cbs-u": _column(_LOW, 71.86, 71.43, 70.30, 66.62, 56.09, 17.94),
    },
}

DENSE = {"mlpnet": 93.97, "resnet20": 91.36, "cifarnet": 79.75, "mobilenet-0.75": 72.0}
