"""The courses of tests/runners/elastic/test_simulated_rules.py, sixty of each rule."""

from pathlib import Path
from typing import Any

import pytest

from tests.runners.elastic.test_simulated_rules import CASES, COURSES, run_course


@pytest.mark.parametrize("seed", range(COURSES, 60))
@pytest.mark.parametrize(("rule", "options"), CASES)
def test_random_courses_are_exact(rule: str, options: dict[str, Any], seed: int, tmp_path: Path) -> None:
    run_course(rule, seed, tmp_path, options)
