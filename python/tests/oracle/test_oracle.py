"""The same calls on the original wheel and on ours, compared."""

from __future__ import annotations

import json
import warnings

import pytest

from oracle_cases import CASES, Case
from oracle_cases.registry import VARIES
from oracle_sides import ours_python, sides, stock_python  # noqa: F401
from oracle_supervisor import Side

#: The first test waits until both sides have run all cases: a limit for single tests does not fit that.
pytestmark = pytest.mark.timeout(1500)

COMPARED = [c for c in CASES.values() if not c.harness]


def judged(record: dict) -> dict:
    """The part of a record that is compared."""
    return {k: record[k] for k in ("outcome", "result") if k in record}


def wrong(case: Case, stock: dict, ours: dict) -> str | None:
    """What is wrong with the records of a case; None if nothing is."""
    expected_stock = case.stock if case.differs else judged(stock)
    expected_ours = case.ours if case.differs else judged(stock)
    out = []
    if expected_stock != VARIES and judged(stock) != expected_stock:
        out.append(
            f"the original is not what the case says\n  says {text(expected_stock)}\n"
            f"  is   {text(judged(stock))}{words(stock)}"
        )
    if judged(ours) != expected_ours:
        out.append(
            f"ours is not as expected\n  expected {text(expected_ours)}\n  is       {text(judged(ours))}{words(ours)}"
        )
    if not out:
        return None
    reason = f"\nthe sides differ on purpose: {case.differs}" if case.differs else ""
    return f"{case.id}: {case.doc}\n" + "\n".join(out) + reason


def text(record: dict) -> str:
    return json.dumps(record, ensure_ascii=False)


def words(record: dict) -> str:
    said = record.get("text") or record.get("said") or ""
    return f"\n  ({said[-600:]})" if said else ""


@pytest.mark.parametrize("case_id", [c.id for c in COMPARED])
def test_case(case_id: str, sides: dict[str, Side]) -> None:  # noqa: F811
    case = CASES[case_id]
    first = wrong(case, *(sides[s].records[case_id] for s in ("stock", "ours")))
    if first is None:
        return
    # On a busy machine a limit may have passed; what is really wrong is wrong again in a process of its own.
    again = [Side(sides[s].python, sides[s].module, sides[s].facade).run([case])[case_id] for s in ("stock", "ours")]
    second = wrong(case, *again)
    if second is not None:
        pytest.fail(second, pytrace=False)
    warnings.warn(f"second try: {first}", stacklevel=1)


@pytest.mark.parametrize("case_id", [COMPARED[0].id])
def test_our_processes_end_with_zero(case_id: str, sides: dict[str, Side]) -> None:  # noqa: F811
    bad = [p for p in sides["ours"].processes if p["exit"] != 0 or p["hung"] or p["unfinished"]]
    assert not bad, json.dumps(bad, indent=1)
    peers = {case: record["peers"] for case, record in sides["ours"].records.items() if any(record.get("peers", []))}
    assert not peers, peers


def test_there_are_enough_cases() -> None:
    equal = [c.id for c in COMPARED if c.differs is None]
    assert len(equal) >= 150, len(equal)


def test_every_difference_is_explained_and_real() -> None:
    for case in COMPARED:
        if case.differs is not None:
            assert len(case.differs) > 20, case.id
            assert case.stock != case.ours, case.id
            assert case.ours != VARIES, case.id


def test_the_harness_sees_every_end(ours_python: str) -> None:  # noqa: F811
    cases = [CASES[f"harness.{name}"] for name in ("returns", "raises", "dies", "sleeps", "comes_after")]
    side = Side(ours_python, "nixl_cu12", "nixl")
    found = {name.split(".")[1]: judged(record) for name, record in side.run(cases).items()}
    assert found == {
        "returns": {"outcome": "ok", "result": 7},
        "raises": {"outcome": "raised", "result": {"raises": "nixlNotFoundError", "status": "NIXL_ERR_NOT_FOUND"}},
        "dies": {"outcome": "crashed"},
        "sleeps": {"outcome": "hung"},
        "comes_after": {"outcome": "ok", "result": True},
    }
    assert [p["exit"] for p in side.processes] == [-6, -9, 0]


def test_the_verdict_sees_a_difference() -> None:
    equal, other = {"outcome": "ok", "result": [1, "a"]}, {"outcome": "ok", "result": [1, "b"]}
    plain = COMPARED[0]
    assert plain.differs is None
    assert wrong(plain, equal, dict(equal, seconds=3)) is None
    assert "ours is not as expected" in wrong(plain, equal, other)
    told = next(c for c in COMPARED if c.differs and c.stock != VARIES)
    assert wrong(told, told.stock, told.ours) is None
    assert "the original is not what the case says" in wrong(told, told.ours, told.ours)
    assert "ours is not as expected" in wrong(told, told.stock, told.stock)
