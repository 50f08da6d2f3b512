"""The page in one file, and its policy."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from headrace.broker.console.page import page


def element(name: str) -> str:
    found = re.findall(f"<{name}>(.*?)</{name}>", page().content.decode(), re.DOTALL)
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("name", ["script", "style"])
def test_the_policy_allows_the_page_s_own_code_by_its_hash(name):
    digest = base64.b64encode(hashlib.sha256(element(name).encode()).digest()).decode()
    assert f"{name}-src 'sha256-{digest}';" in page().policy
    assert "unsafe" not in page().policy


def test_nothing_comes_from_elsewhere():
    text = page().content.decode().replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?://", text) == []
    assert re.findall(r"""(?:src|href)=["'](?!data:,|#)[^"']*""", text) == []
    assert "@import" not in text
    assert "url(" not in text


@pytest.mark.parametrize(
    "sink", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
)
def test_the_script_makes_no_markup_of_text(sink):
    assert sink not in element("script")


def test_no_style_or_handler_is_in_an_attribute():
    markup = re.sub(r"<(script|style)>.*?</\1>", "", page().content.decode(), flags=re.DOTALL)
    assert re.findall(r"\s(?:style|on\w+)=", markup) == []
