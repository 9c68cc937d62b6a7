"""What is known of stock optimizers that do not pass: whose fault, and where.

An entry recognises rows by what came out, never by the name of an optimizer alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from known_rows import Known


def split_case(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Family, class and option of a row."""
    family, name, option = row["case"].split("/")
    return family, name, option


def _is_clip(row: Mapping[str, Any]) -> bool:
    codes = {(f["code"], f["origin"]) for f in row["findings"]}
    return codes == {("clip-before-reduction", "framework")}


def _is_merge_in_conditional(row: Mapping[str, Any]) -> bool:
    return any(
        found["code"] == "raises" and "`merge_call` called" in found["explanation"]
        for found in row["findings"]
    )


def _places_repeated_rows(row: Mapping[str, Any]) -> bool:
    return row["status"] == "skipped" and "GatherV2" in row["message"]


def _updates_for_each(row: Mapping[str, Any]) -> bool:
    codes = {(f["code"], f["origin"]) for f in row["findings"]}
    return codes == {("update-repeated", "framework")}


def _decays_shared_variable(row: Mapping[str, Any]) -> bool:
    is_muon = split_case(row)[:2] == ("keras3", "Muon")
    return is_muon and row["status"] == "refused" and _assigns_shared_variable(row)


def _is_clear_refusal(row: Mapping[str, Any]) -> bool:
    return row["status"] == "refused" and " is not supported " in row["message"]


def _assigns_shared_variable(row: Mapping[str, Any]) -> bool:
    words = [row["message"], *(f["explanation"] for f in row["findings"])]
    refusal = "You must specify an aggregation method to update a AggregatingVariable"
    return any(refusal in text for text in words)


KNOWN: tuple[Known, ...] = (
    Known(
        title="Refused with a clear error",
        says="tf_keras refuses clips (`make_gradient_clipnorm_fn` and its like in "
        "tf_keras/src/optimizers/utils.py) and loss scales "
        "(`_raise_if_strategy_unsupported` in "
        "tf_keras/src/mixed_precision/loss_scale_optimizer.py) under central storage, "
        "and gradients that the program has summed (`apply_gradients` in "
        "tf_keras/src/optimizers/legacy/optimizer_v2.py) there and on parameter "
        "servers.",
        fits=_is_clear_refusal,
    ),
    Known(
        title="Clips before the sum",
        says="`BaseOptimizer.apply` in keras/src/optimizers/base_optimizer.py clips "
        "each replica's gradients, and they are summed later.",
        fits=_is_clip,
        entry="keras3_clips_before_the_sum.py",
    ),
    Known(
        title="Raises in a conditional",
        says="`_backend_apply_gradients` in keras/src/optimizers/base_optimizer.py "
        "updates variables in a branch of `ops.cond`, in which TensorFlow refuses "
        "`merge_call`.",
        fits=_is_merge_in_conditional,
        entry="keras3_conditional_updates_raise.py",
    ),
    Known(
        title="Raises on repeated rows",
        says="`update_step` in keras/src/optimizers/rmsprop.py, centred, takes a root "
        "of a variance that slices of one row make negative, and "
        "`indexed_slices_union_indices_and_values` in "
        "keras/src/backend/tensorflow/sparse.py then adds up their places: it raises "
        "on one device already.",
        fits=_places_repeated_rows,
        entry="keras3_repeated_rows.py",
    ),
    Known(
        title="Updates once per replica",
        says="`Optimizer.apply_gradients` in tensorflow/python/training/optimizer.py, "
        "told not to sum, has every replica update the variable that all share.",
        fits=_updates_for_each,
        entry="v1_updates_once_per_replica.py",
    ),
    Known(
        title="Decays on each replica",
        says="`Muon._apply_weight_decay` in keras/src/optimizers/muon.py assigns the "
        "variables in replica context, which replicas that share them refuse.",
        fits=_decays_shared_variable,
        entry="keras3_muon_decays_on_each_replica.py",
    ),
    Known(
        title="Assigns a shared variable on a replica",
        says="`_update_model_variables_moving_average` in "
        "keras/src/optimizers/base_optimizer.py, `_backend_update_step` in "
        "keras/src/optimizers/nadam.py and `_tf_apply` in "
        "keras/src/optimizers/loss_scale_optimizer.py assign averages, a product of "
        "momenta and counters in replica context. Where replicas share a variable that "
        "needs an aggregation, and `AggregatingVariable._assign_func` in "
        "tensorflow/python/distribute/ps_values.py refuses it.",
        fits=_assigns_shared_variable,
    ),
)
