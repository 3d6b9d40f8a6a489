"""values.yaml with its comments is the source of the chart's schema and table."""

import json

import pytest

from slimscale.cli.chart_values import read_values, values_schema, values_table
from slimscale.exceptions import SlimError

TEXT = """
# Heading, of nothing.

image:
  # Where it lies,
  # in two lines.
  repository: here
  # When to pull.
  # @schema {"enum": ["Always", "Never"]}
  pull: Always

# What the pod may use.
resources:
  limits:
    memory: 1Gi
"""


def test_comments_become_descriptions_and_constraints() -> None:
    schema = json.loads(values_schema(read_values(TEXT)))
    image = schema["properties"]["image"]
    assert image["additionalProperties"] is False
    assert image["properties"]["repository"]["description"] == "Where it lies, in two lines."
    assert image["properties"]["pull"]["enum"] == ["Always", "Never"]


def test_a_mapping_with_a_comment_is_one_value_that_users_fill() -> None:
    schema = json.loads(values_schema(read_values(TEXT)))
    assert schema["additionalProperties"] is False
    assert "additionalProperties" not in schema["properties"]["resources"]


def test_the_table_has_a_row_for_each_value() -> None:
    rows = values_table(read_values(TEXT)).splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == ["image.repository", "image.pull", "resources"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one: 1\n", "one has no comment"),
        ("outer:\n  one: 1\n", r"outer\.one has no comment"),
        ("# Words.\n# @schema {oops\none: 1\n", "@schema of one is no JSON"),
        ("- 1\n", "no mapping"),
    ],
)
def test_what_is_not_documented_is_refused(text: str, words: str) -> None:
    with pytest.raises(SlimError, match=words):
        read_values(text)
