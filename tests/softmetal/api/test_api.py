"""Our headers declare what Apple's do: names, types, values."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.softmetal.api.apple import Apple, read_apple
from tests.softmetal.api.compare import mismatches
from tests.softmetal.api.declared import declared
from tests.softmetal.api.packages import fetch
from tests.softmetal.probe import HERE, INSTALL, missing_packages

if TYPE_CHECKING:
    from pathlib import Path

SDK = HERE / "sdk"


@pytest.fixture(scope="module")
def apple() -> Apple:
    if missing_packages():
        pytest.skip(f"{missing_packages()} is missing: {INSTALL}")
    try:
        return read_apple(fetch())
    except subprocess.CalledProcessError as error:
        pytest.skip(f"pip cannot fetch mlx-metal and pyobjc-framework-Metal: {error.stderr[-300:]}")


def test_every_declaration_is_apples(apple: Apple) -> None:
    ours = declared(SDK)
    assert len(ours.methods) > 180
    assert len(ours.values) > 70
    assert mismatches(ours, apple) == []


@pytest.mark.parametrize(
    ("file", "right", "wrong", "message"),
    [
        (
            "MTLBuffer.h",
            "- (void*)contents;",
            "- (void*)content;",
            "-[MTLBuffer content]: Apple has",
        ),
        ("MTLBuffer.h", "NSUInteger length;", "NSInteger length;", "-[MTLBuffer length]: (long)"),
        ("MTLDevice.h", "getter=isLowPower", "getter=lowPower", "-[MTLDevice lowPower]: Apple has"),
        (
            "MTLDevice.h",
            "(MTLResourceOptions)options;",
            "(MTLStorageMode)options;",
            "newBufferWithLength:options:]: (MTLBuffer*) ['unsigned long', 'MTLStorageMode']",
        ),
        (
            "MTLDevice.h",
            "(void* pointer, NSUInteger length)",
            "(void* pointer, int length)",
            "-[MTLDevice newBufferWithBytesNoCopy:length:options:deallocator:]",
        ),
        (
            "MTLEvent.h",
            "@property(readwrite) uint64_t signaledValue",
            "@property uint32_t signaledValue",
            "-[MTLSharedEvent setSignaledValue:]: (void) ['unsigned int']",
        ),
        (
            "MTLCommandBuffer.h",
            "(void)encodeWaitForEvent:(id<MTLEvent>)event",
            "(void)encodeWaitForEvent:(id<MTLSharedEvent>)event",
            "-[MTLCommandBuffer encodeWaitForEvent:value:]",
        ),
        (
            "MTLCommandBuffer.h",
            "MTLCommandBufferHandler)(id<MTLCommandBuffer> buffer)",
            "MTLCommandBufferHandler)(id<MTLCommandQueue> buffer)",
            "addCompletedHandler:",
        ),
        (
            "MTLCommandBuffer.h",
            "MTLCommandBufferStatusCompleted = 4",
            "MTLCommandBufferStatusCompleted = 5",
            "MTLCommandBufferStatusCompleted = 5, and Apple's is ['4']",
        ),
        (
            "MTLFunctionConstantValues.h",
            "MTLDataTypeUShort = 41",
            "MTLDataTypeUInt16 = 41",
            "MTLDataTypeUInt16: Apple has no such value",
        ),
        (
            "MTLLibrary.h",
            "NS_ENUM(NSInteger, MTLMathMode)",
            "NS_ENUM(NSUInteger, MTLMathMode)",
            "MTLMathMode has type NSUInteger, and Apple's NS::Integer",
        ),
    ],
)
def test_a_wrong_declaration_is_found(
    apple: Apple, tmp_path: Path, file: str, right: str, wrong: str, message: str
) -> None:
    changed = tmp_path / "sdk"
    shutil.copytree(SDK, changed)
    path = changed / "Metal" / file
    text = path.read_text()
    assert right in text
    if "Handler" in right:
        text = text.replace(
            "typedef void (^MTLCommandBufferHandler)",
            "@protocol MTLCommandQueue;\ntypedef void (^MTLCommandBufferHandler)",
        )
    path.write_text(text.replace(right, wrong))
    assert any(message in line for line in mismatches(declared(changed), apple))
