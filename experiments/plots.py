"""matplotlib, set up so that the same records give the same file."""

from typing import Any


def pyplot_for_svg() -> Any:
    """Return pyplot, drawing to SVG with names that do not change from run to run."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "brainsurgeon", "svg.fonttype": "none"}
    from matplotlib import pyplot

    return pyplot
