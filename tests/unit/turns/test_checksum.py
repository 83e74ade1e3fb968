"""The checksum of a tool call equals that of JavaScript, computed by the browser of the UI tests."""

from __future__ import annotations

import json
import random
import struct
import subprocess
from pathlib import Path
from typing import Any

import playwright

from keelbolt.turns.primitives.tool_call import canonical

NODE = Path(playwright.__file__).parent / "driver" / "node"
PROGRAM = """
const canonical = value =>
  value === null || typeof value !== "object" ? JSON.stringify(value)
  : Array.isArray(value) ? "[" + value.map(canonical).join(",") + "]"
  : "{" + Object.keys(value).sort().map(key => JSON.stringify(key) + ":" + canonical(value[key])).join(",") + "}";
const lines = require("fs").readFileSync(0, "utf8").split("\\n");
require("fs").writeFileSync(1, JSON.stringify(lines.map(line => canonical(JSON.parse(line)))));
"""
CHARACTERS = ["a", "Z", "10", "2", "é", "\u2028", "\x7f", "\x00", '"', "\\", "/", "\uff5e", "\ue000", "\U0001f600"]
EDGES = [1e21, 1e20, 123456789012345680000.0, 1e-6, 1e-7, 5e-324, 1.7976931348623157e308, -0.0, 2**53 + 1, 10**22]


class Values:
    """Generates values whose text form often differs between languages, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self) -> str:
        return "".join(self.random.choices([*CHARACTERS, "\ud800", "\udc00", "\n"], k=self.random.randrange(5)))

    def number(self) -> float:
        bits = struct.unpack("d", struct.pack("Q", self.random.getrandbits(64)))[0]
        finite = bits if abs(bits) < float("inf") else 0.5
        some = (self.random.choice(EDGES), self.random.randrange(-(2**70), 2**70), self.random.randrange(99), finite)
        return self.random.choice(some)

    def value(self, depth: int = 0) -> Any:
        match self.random.randrange(4 if depth > 2 else 7):
            case 0:
                return self.random.choice([None, True, False])
            case 1:
                return self.text()
            case 2 | 3:
                return self.number()
            case 4:
                return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
            case _:
                return {self.text(): self.value(depth + 1) for _ in range(self.random.randrange(5))}


def test_the_checksum_equals_javascripts() -> None:
    values = Values(5)
    given = [values.value() for _ in range(1500)]
    lines = "\n".join(map(json.dumps, given)).encode()
    ran = subprocess.run([NODE, "-e", PROGRAM], input=lines, capture_output=True, check=True)
    for value, expected in zip(given, json.loads(ran.stdout), strict=True):
        assert canonical(value) == expected
