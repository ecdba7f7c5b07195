"""Differences between what our headers declare and what Apple's do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .types import normalize

if TYPE_CHECKING:
    from .apple import Apple
    from .declared import Api, Method

# metal-cpp has no name for these. They are as Foundation's documentation has them.
NOT_IN_METAL_CPP = {
    "NSArray": {"+arrayWithObjects:count:", "+arrayWithObject:", "-objectAtIndexedSubscript:"},
    "NSDictionary": {"-objectForKeyedSubscript:"},
    "NSNumber": {"+numberWithInteger:", "+numberWithUnsignedInteger:"},
    "NSString": {
        "+stringWithFormat:",
        "+stringWithUTF8String:",
        "-initWithBytes:length:encoding:",
        "-initWithUTF8String:",
    },
}
# Sent by C++ in another way than by a method of the class: metal-cpp's own object protocol.
_OBJECT = {"NSObject"}
_BASIC = {
    "NSUInteger": "unsigned long",
    "NSInteger": "long",
    "uint64_t": "unsigned long",
    "NSTimeInterval": "double",
    "CFTimeInterval": "double",
    "BOOL": "bool",
    "unsigned long long": "unsigned long",
    "long long": "long",
    "dispatch_queue_t": "dispatch_queue_t",
    "id": "id",
    "ObjectType": "id",
    "KeyType": "id",
    "NSObject*": "id",
    "NS_Object*": "id",
}


def _lineage(api: Apple, name: str) -> list[str]:
    line = [name]
    while line[-1] in api.bases and api.bases[line[-1]] not in line:
        line.append(api.bases[line[-1]])
    return line


def _method_problem(method: Method, ours: Api, apple: Apple) -> str | None:
    where = f"{method.selector[0]}[{method.owner} {method.selector[1:]}]"
    line = _lineage(apple, method.owner)
    candidates = [m for m in apple.methods if m.selector == method.selector and m.owner in line]
    if not candidates:
        return f"{where}: Apple has no such method"
    our_aliases = {**ours.aliases, **_BASIC}
    their_aliases = {**apple.aliases, **_BASIC}
    shape = [normalize(p, our_aliases) for p in method.parameters]
    returns = normalize(method.returns, our_aliases)
    problem = ""
    for candidate in candidates:
        theirs = [normalize(p, their_aliases) for p in candidate.parameters]
        their_return = normalize(candidate.returns, their_aliases)
        same_return = returns in (their_return, "instancetype")
        if shape == theirs and same_return:
            return None
        problem = f"{where}: ({returns}) {shape}, and Apple's is ({their_return}) {theirs}"
    return problem


def mismatches(ours: Api, apple: Apple) -> list[str]:
    """A line for each difference."""
    found = []
    for method in ours.methods:
        if method.owner in _OBJECT or method.selector in NOT_IN_METAL_CPP.get(method.owner, ()):
            continue
        problem = _method_problem(method, ours, apple)
        if problem:
            found.append(problem)
    for name, value in ours.values.items():
        known = {apple.values.get(name), apple.metadata.get(name)} - {None}
        if not known:
            found.append(f"{name}: Apple has no such value")
        elif known != {value}:
            found.append(f"{name} = {value}, and Apple's is {sorted(map(str, known))}")
    for name, kind in ours.enumerations.items():
        theirs = apple.enumerations.get(name)
        ours_kind = normalize(kind, {**ours.aliases, **_BASIC})
        if theirs is None:
            found.append(f"{name}: Apple has no such enumeration")
        elif normalize(theirs, {**apple.aliases, **_BASIC}) != ours_kind:
            found.append(f"{name} has type {kind}, and Apple's {theirs}")
    unknown = sorted(ours.constants - apple.constants)
    return found + [f"{name}: Apple has no such constant" for name in unknown]
