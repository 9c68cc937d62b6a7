"""Ops that move numbers elsewhere, and make no others of them."""

from __future__ import annotations

_NAMES = (
    "BroadcastTo ConcatV2 Diag DiagPart ExpandDims Gather GatherNd GatherV2 Identity "
    "IdentityN MatrixBandPart MatrixDiagPartV3 MatrixDiagV3 MatrixSetDiagV3 Pack Pad "
    "PadV2 PreventGradient Reshape ResourceGather Reverse ReverseV2 Roll Select "
    "SelectV2 Slice Split SplitV Squeeze StopGradient StridedSlice Tile Transpose "
    "Unpack"
)
MOVING = frozenset(_NAMES.split())
"""Types of ops of which each number of an output is one of an input, or 0."""
